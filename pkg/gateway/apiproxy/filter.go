// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// The defaults of kubectl proxy.
const (
	DefaultAcceptHosts   = `^localhost$,^127\.0\.0\.1$,^\[::1\]$`
	DefaultAcceptPaths   = `^.*`
	DefaultRejectPaths   = `^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach`
	DefaultRejectMethods = `^$`
)

// Patterns are regular expressions, of which one has to match.
type Patterns []*regexp.Regexp

// ParseAccept reads patterns separated by commas. One that accepts has to match the whole
// value: "localhost" does not accept localhost.example.com.
func ParseAccept(list string) (Patterns, error) { return parse(list, `(?s)\A(?:%s)\z`) }

// ParseReject reads patterns separated by commas. One that rejects may match any part of
// the value: a pattern that is written too short rejects too much, not too little.
func ParseReject(list string) (Patterns, error) { return parse(list, `(?s)(?:%s)`) }

func parse(list, form string) (Patterns, error) {
	if list == "" {
		return nil, nil
	}
	var out Patterns
	for _, pattern := range split(list) {
		// By itself first: "a)|(b" is one only inside of the parentheses.
		if _, err := regexp.Compile(pattern); err != nil {
			return nil, fmt.Errorf("pattern %q: %w: correct it; commas separate patterns", pattern, err)
		}
		re, err := regexp.Compile(fmt.Sprintf(form, pattern))
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w: correct it", pattern, err)
		}
		out = append(out, re)
	}
	return out, nil
}

// counted is a quantifier with a comma, which separates no patterns.
var counted = regexp.MustCompile(`\{[0-9]+,[0-9]*\}`)

// split separates a list at its commas, but for those of quantifiers: cut in two, "x{1,2}"
// would be two patterns that are valid and match nothing that is meant.
func split(list string) []string {
	const comma = "\x00"
	masked := counted.ReplaceAllStringFunc(list, func(q string) string { return strings.Replace(q, ",", comma, 1) })
	parts := strings.Split(masked, ",")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], comma, ",")
	}
	return parts
}

func (p Patterns) match(value string) bool {
	for _, re := range p {
		if re.MatchString(value) {
			return true
		}
	}
	return false
}

// Filter decides which requests the proxy forwards. What it rejects wins over what it accepts.
type Filter struct {
	AcceptHosts, AcceptPaths Patterns
	// AcceptOrigins are the web pages that may use the proxy besides its own, such as https://dashboard.example.com.
	AcceptOrigins              Patterns
	RejectPaths, RejectMethods Patterns
}

// refusal is why a request is not forwarded.
type refusal struct {
	reason  string // a metric's label
	message string
}

// checkSource refuses requests that a web page of another site makes with the user's
// browser. It holds for static files as well. The check of the Host header is what stops
// DNS rebinding: there the page's own name resolves to the proxy's address.
func (f *Filter) checkSource(req *http.Request) *refusal {
	if host := hostOf(req.Host); !f.AcceptHosts.match(host) {
		return &refusal{"host", fmt.Sprintf("the host %q of the request matches no pattern of --accept-hosts", host)}
	}
	// A browser sends WebSocket handshakes and simple POSTs to any site, with their origin.
	if origin := req.Header.Get("Origin"); origin != "" {
		if !sameOrigin(req, origin) && !f.AcceptOrigins.match(origin) {
			return &refusal{"origin", fmt.Sprintf("the request comes from a web page of %q, which is not the proxy's own origin: if you trust the page, name it in --accept-origins", origin)}
		}
		return nil
	}
	navigation := req.Header.Get("Sec-Fetch-Mode") == "navigate" && (req.Method == http.MethodGet || req.Method == http.MethodHead)
	// "same-site" is another port or another scheme of the same host.
	if site := req.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && !navigation {
		return &refusal{"origin", "the request comes from a web page of another site"}
	}
	return nil
}

// sameOrigin reports whether a page has the origin of the proxy itself, as RFC 6454 defines it: scheme, host and port. Other ports of
// localhost serve what others wrote: a forwarded port of an application, a notebook, another user's server.
func sameOrigin(req *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	scheme := "http"
	if req.TLS != nil {
		scheme = "https"
	}
	return strings.EqualFold(u.Scheme, scheme) && hostOf(u.Host) == hostOf(req.Host) && portOf(u.Host, scheme) == portOf(req.Host, scheme)
}

// portOf is the port of a Host header, or that of the scheme.
func portOf(header, scheme string) string {
	if _, port, err := net.SplitHostPort(header); err == nil && port != "" {
		return port
	}
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// checkTarget refuses by method and path. The path is checked as it is and without
// "//", "." and "..", because the API server may read either.
func (f *Filter) checkTarget(req *http.Request) *refusal {
	if f.RejectMethods.match(req.Method) {
		return &refusal{"method", fmt.Sprintf("the method %q matches a pattern of --reject-methods", req.Method)}
	}
	for _, p := range []string{req.URL.Path, path.Clean("/" + req.URL.Path)} {
		if f.RejectPaths.match(p) {
			return &refusal{"path", fmt.Sprintf("the path %q matches a pattern of --reject-paths", p)}
		}
	}
	clean := path.Clean("/" + req.URL.Path)
	if strings.HasSuffix(req.URL.Path, "/") && clean != "/" {
		clean += "/"
	}
	for _, p := range []string{req.URL.Path, clean} {
		if !f.AcceptPaths.match(p) {
			return &refusal{"path", fmt.Sprintf("the path %q matches no pattern of --accept-paths, each of which has to match the whole path", p)}
		}
	}
	return nil
}

// hostOf is a Host header without its port, in lower case; IPv6 addresses have brackets.
func hostOf(header string) string {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
