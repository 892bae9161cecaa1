// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"bufio"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// hostKeyAlgorithms returns the algorithms to ask for where known_hosts has these lines for a host: those of its keys, and
// certificates where a line names an authority, which may have signed keys of any kind. A host that is
// unknown has to show a key, which the user can compare.
func hostKeyAlgorithms(known []knownhosts.KnownKey) (algorithms []string) {
	keys, authorities := splitKnown(known)
	for _, name := range ssh.SupportedAlgorithms().HostKeys {
		if isCertificate := strings.Contains(name, "-cert-"); isCertificate && len(authorities) > 0 || !isCertificate && len(keys) == 0 {
			algorithms = append(algorithms, name)
		}
	}
	for _, k := range keys {
		names := []string{k.Key.Type()}
		if names[0] == ssh.KeyAlgoRSA {
			names = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, name := range names {
			if !slices.Contains(algorithms, name) {
				algorithms = append(algorithms, name)
			}
		}
	}
	return algorithms
}

// splitKnown tells the keys of hosts from those of authorities, which sign host keys.
func splitKnown(known []knownhosts.KnownKey) (keys, authorities []knownhosts.KnownKey) {
	for _, k := range known {
		if isAuthority(k) {
			authorities = append(authorities, k)
		} else {
			keys = append(keys, k)
		}
	}
	return keys, authorities
}

// isAuthority reads the line of a key again: the library does not say which marker it has.
func isAuthority(k knownhosts.KnownKey) bool {
	f, err := os.Open(k.Filename)
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if n == k.Line {
			words := strings.Fields(lines.Text())
			return len(words) > 0 && words[0] == "@cert-authority"
		}
	}
	return false
}
