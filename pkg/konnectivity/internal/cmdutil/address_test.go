// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"net/http"
	"testing"
)

// TestAddress: an IPv6 address is the same with and without brackets, and what is no address
// in brackets stays what it was, so that the error names it.
func TestAddress(t *testing.T) {
	for host, want := range map[string]string{
		"": ":80", "::1": "[::1]:80", "[::1]": "[::1]:80", "[fe80::1%eth0]": "[fe80::1%eth0]:80", "127.0.0.1": "127.0.0.1:80",
		"server.test": "server.test:80", "[server.test]": "[server.test]:80", "[127.0.0.1]": "[127.0.0.1]:80", "[[::1]]": "[[[::1]]]:80",
	} {
		if got := Address(host, 80); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}

// TestServeInBrackets: a listener opens on an address in brackets.
func TestServeInBrackets(t *testing.T) {
	if err := Serve(t.Context(), "test listener", "[::1]", 0, http.NotFoundHandler()); err != nil {
		t.Error(err)
	}
}
