// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each rule of the default filter refuses and accepts what it has to. A refused request
// does not reach the API server, and gets a Status object with code 403.
// It observes HTTP-03 and HTTP-06 of docs/requirements.md.
func TestDefaultFilter(t *testing.T) {
	api := startAPIServer(t)
	filter := defaults(t)
	var err error
	if filter.AcceptOrigins, err = ParseAccept(`https://dashboard\.example\.com`); err != nil {
		t.Fatal(err)
	}
	address, _ := serve(t, Options{Config: api.config(), Filter: filter}, 0)
	const pods, exec = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/p/exec"
	for name, tt := range map[string]struct {
		request string
		want    int
	}{
		"plain":                              {get(pods, "localhost:8001"), 200},
		"address":                            {get(pods, "127.0.0.1:8001"), 200},
		"IPv6 with a port":                   {get(pods, "[::1]:8001"), 200},
		"IPv6 without a port":                {get(pods, "[::1]"), 200},
		"host in capitals":                   {get(pods, "LOCALHOST"), 200},
		"DNS rebinding":                      {get(pods, "attacker.example.com:8001"), 403},
		"name that begins as localhost does": {get(pods, "localhost.example.com"), 403},
		"name that ends as localhost does":   {get(pods, "xlocalhost"), 403},
		"address that begins alike":          {get(pods, "127.0.0.1.example.com"), 403},
		"no host":                            {get(pods, ""), 403},
		"host of the request line":           {get("http://attacker.example.com"+pods, "localhost"), 403},
		"exec":                               {get(exec+"?command=sh", "localhost"), 403},
		"exec with a slash":                  {get(exec+"/", "localhost"), 403},
		"exec, encoded":                      {get("/api/v1/namespaces/default/pods/p/%65xec", "localhost"), 403},
		"exec, encoded slash":                {get("/api/v1/namespaces/default/pods/p%2Fexec", "localhost"), 403},
		"exec after two slashes":             {get("//api/v1/namespaces/default/pods/p/exec", "localhost"), 403},
		"exec with dots":                     {get("/x/../api/v1/namespaces/default/pods/p/exec", "localhost"), 403},
		"exec with a line feed":              {get("/api/v1/namespaces/a%0Ab/pods/p/exec", "localhost"), 403},
		"attach":                             {get("/api/v1/namespaces/default/pods/p/attach", "localhost"), 403},
		"WebSocket of another site":          {get(pods, "localhost", "Origin: https://attacker.example.com"), 403},
		"page with no origin":                {get(pods, "localhost", "Origin: null"), 403},
		"page of the proxy":                  {get(pods, "localhost:8001", "Origin: http://localhost:8001"), 200},
		"page of the proxy on port 80":       {get(pods, "localhost", "Origin: http://localhost"), 200},
		"page of the proxy, port 80 written": {get(pods, "localhost:80", "Origin: http://LOCALHOST"), 200},
		"page of another port":               {get(pods, "localhost:8001", "Origin: http://localhost:3000"), 403},
		"page without a port":                {get(pods, "localhost:8001", "Origin: http://localhost"), 403},
		"page of another scheme":             {get(pods, "localhost:8001", "Origin: https://localhost:8001"), 403},
		"page of another loopback name":      {get(pods, "localhost:8001", "Origin: http://127.0.0.1:8001"), 403},
		"page with a user":                   {get(pods, "localhost:8001", "Origin: http://x@localhost:8001"), 403},
		"WebSocket of another port":          {get(pods+"?watch=true", "localhost:8001", "Origin: http://localhost:3000", "Connection: Upgrade", "Upgrade: websocket"), 403},
		"page that is named":                 {get(pods, "localhost:8001", "Origin: https://dashboard.example.com"), 200},
		"page that is named, longer":         {get(pods, "localhost:8001", "Origin: https://dashboard.example.com.evil.example"), 403},
		"script of another port":             {get(pods, "localhost", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"), 403},
		"link of another port":               {get(pods, "localhost", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate"), 200},
		"image in a page of another site":    {get(pods, "localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"), 403},
		"link in a page of another site":     {get(pods, "localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"), 200},
		"form in a page of another site":     {request("POST", pods, "localhost", "Content-Length: 0", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"), 403},
		"address bar":                        {get(pods, "localhost", "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate"), 200},
	} {
		t.Run(name, func(t *testing.T) {
			before := api.requests.Load()
			got := send(t, address, tt.request)
			if got.status != tt.want {
				t.Fatalf("status %d, want %d: %s", got.status, tt.want, got.body)
			}
			if tt.want == http.StatusOK {
				return
			}
			if api.requests.Load() != before {
				t.Error("the API server got the request")
			}
			var status metav1.Status
			if err := json.Unmarshal([]byte(got.body), &status); err != nil || status.Kind != "Status" || status.Reason != metav1.StatusReasonForbidden || status.Code != 403 {
				t.Errorf("the answer is %s", got.body)
			}
		})
	}
}

// Patterns that accept hold for the whole value and those that reject for any part of it,
// so that one without anchors errs on the side of refusing. What rejects wins.
// It observes HTTP-06 of docs/requirements.md.
func TestPatterns(t *testing.T) {
	api := startAPIServer(t)
	address, _ := serve(t, Options{Config: api.config(), Filter: filter(t,
		`localhost,.*\.example\.com`, `/api/v1/pods,/api/v1/secrets.*|/version,/apis/[a-z]{1,2}[0-9]{2,}`, `secrets/hidden`, `DELETE,P`)}, 0)
	for name, tt := range map[string]struct {
		request string
		want    int
	}{
		"accepted path":                   {get("/api/v1/pods", "localhost"), 200},
		"more than the accepted path":     {get("/api/v1/pods/p", "localhost"), 403},
		"accepted path inside of another": {get("/apis/x/api/v1/pods", "localhost"), 403},
		"first alternative":               {get("/api/v1/secrets/s", "localhost"), 200},
		"second alternative":              {get("/version", "localhost"), 200},
		"more than an alternative":        {get("/versions", "localhost"), 403},
		"accepted path, then out of it":   {get("/api/v1/secrets/../pods/p", "localhost"), 403},
		"the same in another form":        {get("/api/v1/secrets/%2e%2e/pods/p", "localhost"), 403},
		"two slashes in accepted path":    {get("/api/v1/secrets//s", "localhost"), 200},
		"rejected part":                   {get("/api/v1/secrets/hidden-one", "localhost"), 403},
		"host by pattern":                 {get("/version", "proxy.example.com"), 200},
		"host that goes on":               {get("/version", "proxy.example.com.attacker.test"), 403},
		"rejected method":                 {request("DELETE", "/api/v1/pods", "localhost"), 403},
		"quantifier with a comma":         {get("/apis/ab12", "localhost"), 200},
		"method by a part":                {request("PATCH", "/api/v1/pods", "localhost", "Content-Length: 0"), 403},
	} {
		if got := send(t, address, tt.request); got.status != tt.want {
			t.Errorf("%s: status %d, want %d: %s", name, got.status, tt.want, got.body)
		}
	}
}

// A pattern that is no regular expression is refused with the pattern and what to do, also
// where parentheses around it would make it one.
func TestBadPatterns(t *testing.T) {
	for _, list := range []string{"(", "^/api,[", "a)|(b", "[a,b]"} {
		for name, parse := range map[string]func(string) (Patterns, error){"accept": ParseAccept, "reject": ParseReject} {
			if _, err := parse(list); err == nil || !strings.Contains(err.Error(), "commas separate patterns") {
				t.Errorf("%s %q: %v", name, list, err)
			}
		}
	}
	if p, err := ParseReject(""); err != nil || p.match("/anything") {
		t.Errorf("an empty list matches: %v, %v", p, err)
	}
}

// Without a filter every request is forwarded, exec among them.
func TestNoFilter(t *testing.T) {
	api := startAPIServer(t)
	address, _ := serve(t, Options{Config: api.config()}, 0)
	if got := send(t, address, get("/x", "attacker.example.com", "Origin: null")); got.status != http.StatusOK {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}
