// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
)

// ownUser is the user name of the random password.
const ownUser = "fairlead"

// proxyURL returns the URL of the proxy. Its scheme is one that kubectl accepts, too: with
// TLS only HTTP CONNECT has one.
func proxyURL(host string, login *auth.Login, withTLS bool) *url.URL {
	u := &url.URL{Scheme: "socks5", Host: host}
	if withTLS {
		u.Scheme = "https"
	}
	if login != nil {
		u.User = url.UserPassword(login.Name, login.Password)
	}
	return u
}

// urlFile returns the path of the file for the URL.
func (o *Options) urlFile(addr net.Addr) (string, error) {
	if o.URLFile != "" {
		return o.URLFile, nil
	}
	base := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no directory for the proxy's URL: %w: set --url-file", err)
		}
		base = cmp.Or(os.Getenv("XDG_STATE_HOME"), filepath.Join(home, ".local", "state"))
	}
	_, port, err := net.SplitHostPort(addr.String())
	return filepath.Join(base, "fairlead", "socks5-"+port+".url"), err
}

// writeURL writes the URL to a new file that only its owner can read. An old file is
// replaced, not written into: it may be open, or have another mode.
func writeURL(path string, u *url.URL) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return fsutil.WriteFile(path, []byte(u.String()+"\n"), 0o600)
}

// environment returns the variables that send a program through the proxy. Names are to be
// resolved in the cluster, which curl does for socks5h alone; programs in Go do so for each
// scheme, but their SPDY client knows no socks5h. Exceptions of the user's are for other
// proxies, and often name the very networks of clusters.
func environment(u *url.URL) map[string]string {
	const local = "localhost,127.0.0.1,::1"
	connect, socks := *u, *u
	if u.Scheme == "https" {
		return map[string]string{"HTTPS_PROXY": u.String(), "https_proxy": u.String(), "NO_PROXY": local, "no_proxy": local}
	}
	connect.Scheme, socks.Scheme = "http", "socks5h"
	return map[string]string{
		"NO_PROXY": local, "no_proxy": local,
		"HTTPS_PROXY": connect.String(), "https_proxy": connect.String(),
		"HTTP_PROXY": socks.String(), "http_proxy": socks.String(),
		"ALL_PROXY": socks.String(), "all_proxy": socks.String(),
	}
}

// instructions say how to use the proxy, and how to stop using it. They name the file and
// not the password, because terminals and their logs are read by others.
func instructions(w io.Writer, file string, withTLS bool) {
	fmt.Fprintf(w, "The proxy's URL with the password is in %s\n\n", file)
	if !withTLS {
		fmt.Fprintf(w, "  export ALL_PROXY=\"$(sed 's/^socks5:/socks5h:/' '%s')\"   # curl: names are resolved in the cluster\n", file)
	}
	fmt.Fprintf(w, "  export HTTPS_PROXY=\"$(cat '%s')\"   # kubectl\n\nAfterwards:\n\n", file)
	if !withTLS {
		fmt.Fprintln(w, "  unset ALL_PROXY")
	}
	fmt.Fprintln(w, "  unset HTTPS_PROXY")
	fmt.Fprintln(w)
}
