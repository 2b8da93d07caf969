# zsh -f zsh-offers.zsh COMPLETIONS DIRECTORY LINE …: what an interactive zsh offers at the end of each line; a "== LINE"
# comes before the offers of each. A file of the name _kyc-tokend is found by compinit, any other is sourced.
zmodload zsh/zpty
export COMPLETIONS=$1 ZDOTDIR=$2 OFFERS=$2/offers
cat > $ZDOTDIR/.zshrc <<'RC'
fpath=(${COMPLETIONS:h} $fpath)
autoload -Uz compinit && compinit -u -d $ZDOTDIR/dump
[[ ${COMPLETIONS:t} == _kyc-tokend ]] || source $COMPLETIONS
bindkey '^I' complete-word
compadd() {
  # Within a completer -O, -A and -D only filter: nothing is offered yet.
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  local -a offers
  builtin compadd -A offers "$@"
  print -rl -- $offers >> $OFFERS
  builtin compadd "$@"
}
leave() { exit }
comppostfuncs=(leave)
RC
for line in "${@[3,-1]}"; do
  : > $OFFERS
  zpty shell zsh -i
  zpty -w -n shell "$line"$'\t'
  while zpty -r shell ignored; do :; done
  zpty -d shell
  print -r -- "== $line"
  grep . $OFFERS
done
