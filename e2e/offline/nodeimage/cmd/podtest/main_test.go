// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAnswers(t *testing.T) {
	server := httptest.NewServer(handler())
	defer server.Close()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/echo?msg=a%20word": "a word", "/hostname": host, "/hostName": host, "/clientip": "127.0.0.1:", "/healthz": "ok", "/": "NOW: ",
	} {
		answer, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), want) {
			t.Errorf("%s: %d %q, %v; want %q", path, answer.StatusCode, body, err, want)
		}
	}
	answer, err := http.Get(server.URL + "/nothing")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("/nothing: %s", answer.Status)
	}
}

func TestCommands(t *testing.T) {
	if err := run(t.Context(), []string{"webhook"}); err == nil || !strings.Contains(err.Error(), "webhook") {
		t.Errorf("an unknown command: %v", err)
	}
	if err := run(t.Context(), []string{"netexec", "--udp-port=1"}); err == nil {
		t.Error("an unknown flag: no error")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, args := range [][]string{{"pause"}, {"netexec", "--http-port=0"}} {
		if err := run(ctx, args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}
