// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// stamp is the time that kubelet writes before each line of a log, also before those of wrapped base64: in the time zone of the node.
const stamp = `(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) )?`

var (
	// encoded is what may be base64, in one line or in several.
	encoded = regexp.MustCompile(`(?m)[A-Za-z0-9+/_-]{16,}={0,2}(?:(?:\\r|\\n)+[A-Za-z0-9+/_-]{2,}={0,2}|\r?\n` + stamp + `[ \t]*[A-Za-z0-9+/_-]{2,}={0,2}[ \t]*\r?$)*`)
	// keyMarkers are what every private key in PEM has in its first line, in base64, once or twice: PEM may follow other text.
	keyMarkers = markers()
	// encodedPEM is the beginning of PEM in base64, as in the fields *-data of a kubeconfig and in a Secret.
	encodedPEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/]*`)
	lineEnd    = regexp.MustCompile(`(?m)(?:\\r|\\n)+|\r?\n` + stamp + `[ \t]*`)
	notBase64  = regexp.MustCompile(`=+|[ \t\r]+`)
)

func markers() []string {
	once := alignments("PRIVATE KEY-----")
	all := slices.Clone(once)
	for _, text := range once {
		all = append(all, alignments(text)...)
	}
	return all
}

// alignments are the three forms that text has within base64: it depends on the number of bytes before it. Characters that depend on
// what surrounds the text are left out.
func alignments(text string) []string {
	var out []string
	for before, skip := range []int{0, 2, 3} {
		in := strings.Repeat("\x00", before) + text
		out = append(out, base64.StdEncoding.EncodeToString([]byte(in))[skip:len(in)*8/6])
	}
	return out
}

// decode returns what a run of base64 stands for: as a whole, and without its first lines, which may be words of a log. It also reports whether
// a private key begins anywhere in it.
func decode(run string) (out [][]byte, key bool) {
	lines := lineEnd.Split(strings.NewReplacer("-", "+", "_", "/").Replace(run), -1)
	add := func(text string) {
		for _, part := range notBase64.Split(text, -1) {
			part = part[:len(part)/4*4+[]int{0, 0, 2, 3}[len(part)%4]]
			if decoded, err := base64.RawStdEncoding.DecodeString(part); err == nil && len(decoded) > 0 {
				out = append(out, decoded)
			}
		}
	}
	for i := range min(3, len(lines)) {
		add(strings.Join(lines[i:], ""))
		if slices.ContainsFunc(out, func(data []byte) bool { return len(readable(data)) > len(data)/2 }) {
			break
		}
	}
	if few := 8; len(lines) > 1 && len(lines) <= few {
		for _, line := range lines {
			add(line)
		}
	}
	plain := notBase64.ReplaceAllString(strings.Join(lines, ""), "")
	return out, slices.ContainsFunc(keyMarkers, func(m string) bool { return strings.Contains(plain, m) })
}

// readable is the beginning of decoded data that is text: something else may follow in the same run. It is empty if that is a few letters by chance.
func readable(data []byte) string {
	end := 0
	for end < len(data) {
		r, size := utf8.DecodeRune(data[end:])
		if r == utf8.RuneError && size <= 1 || r < ' ' && !strings.ContainsRune("\t\n\r", r) {
			break
		}
		end += size
	}
	if end < 8 {
		return ""
	}
	return string(data[:end])
}

// holdsCredential reports whether a run of base64 does.
func holdsCredential(run string) bool {
	all, key := decode(run)
	return key || slices.ContainsFunc(all, func(data []byte) bool {
		text := readable(data)
		return isKey(data) || IsSecret([]byte(text)) || Text(text) != text
	})
}

// isKey reports whether data is a private key in DER.
func isKey(data []byte) bool {
	if !bytes.HasPrefix(data, []byte{0x30}) {
		return false
	}
	_, pkcs8 := x509.ParsePKCS8PrivateKey(data)
	_, pkcs1 := x509.ParsePKCS1PrivateKey(data)
	_, ec := x509.ParseECPrivateKey(data)
	return pkcs8 == nil || pkcs1 == nil || ec == nil
}

// encodedText drops base64 that holds a credential.
func encodedText(text string) string {
	text = encoded.ReplaceAllStringFunc(text, func(run string) string {
		if holdsCredential(run) {
			return Mark
		}
		return run
	})
	// What is too short to tell a certificate from a key.
	return encodedPEM.ReplaceAllStringFunc(text, func(found string) string {
		if len(found) < 64 {
			return Mark
		}
		return found
	})
}
