package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

var kyc = http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
	DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", "/run/kyc-tokend/http.sock")
	},
}}

func accessToken() (string, error) {
	const url = "http://localhost/v1/token?waitSeconds=10"
	response, err := kyc.Get(url)
	if err != nil && !os.IsTimeout(err) {
		response, err = kyc.Get(url)
	}
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct{ AccessToken, Code, Detail string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", answer.Code, answer.Detail)
	}
	return answer.AccessToken, nil
}

func main() {
	token, err := accessToken()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(token), "characters")
}
