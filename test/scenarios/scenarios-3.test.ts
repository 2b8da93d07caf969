// A third of the scenarios, by the number in this file's name.
import './scenarios.test.ts'
