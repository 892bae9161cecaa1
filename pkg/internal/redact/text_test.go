// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// TestText proves that credentials of every form are taken out of logs and messages, and that what people need to read stays.
func TestText(t *testing.T) {
	const canary = "c4n4ryc4n4ryc4n4ry"
	key := "-----BEGIN RSA PRIVATE KEY-----\n" + canary + "\n-----END RSA PRIVATE KEY-----"
	for name, text := range map[string]string{
		"private key":                key,
		"private key without an end": "x\n" + key[:50],
		"key in base64":              base64.StdEncoding.EncodeToString([]byte(key)),
		"token":                      "got eyJhbGciOiJSUzI1NiJ9.eyJzdWIi" + canary + ".sig" + canary + " for it",
		"bearer header":              "Authorization: Bearer " + canary,
		"basic header":               `map[Authorization:[Basic ` + canary + `]]`,
		"bearer in a sentence":       "sent bearer " + canary + " to it",
		"cookie":                     "Set-Cookie: session=" + canary + "; Path=/",
		"URL":                        "proxy http://user:" + canary + "@proxy:3128 refused",
		"environment":                "DB_PASSWORD=" + canary,
		"flag":                       "--token=" + canary + " --v=2",
		"quoted flag":                `--client-secret="` + canary + ` b"`,
		"JSON":                       `{"password": "` + canary + `", "a": 1}`,
		"YAML":                       "  client-key-data: " + canary + "\n",
		"query":                      "GET /x?access_token=" + canary + "&b=1",
		"API key":                    "x-api-key: " + canary,
		"brace, environment":         "DB_PASSWORD={x" + canary,
		"brace, flag":                "--api-token={" + canary + "}",
		"backslash in a quoted text": `err="dial: password=hunter\\` + canary + ` failed"`,
		"backslash":                  `password=hunter\` + canary + ` failed`,
	} {
		if got := Text(text); strings.Contains(got, canary) || !strings.Contains(got, Mark) {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
	for _, text := range []string{
		"--service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token", "--token-auth-file=/etc/tokens.csv", "dial tcp 10.0.0.1:10250: i/o timeout",
		"https://127.0.0.1:6443/api/v1/nodes?limit=500", "fairlead_tunnel_server_token_reviews_total 3", "--authentication-audience=system:konnectivity-server",
		"TokenReview failed: tokenreviews.authentication.k8s.io is forbidden",
	} {
		if got := Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestQuotedText proves that a credential in JSON is taken out at each depth of quotation, whatever it consists of, and that what was JSON
// still is: the other fields can be read.
func TestQuotedText(t *testing.T) {
	const canary = "c4n4ry"
	for _, secret := range []string{canary, canary + `"` + canary, `\` + canary, canary + `\`, `"` + canary, canary + "\n" + canary, canary + " " + canary, canary + ", " + canary + "}", "[" + canary + "]"} {
		for _, name := range []string{"password", "client_secret", "Authorization", "x-api-key", "auth", "DB_PASS", "keyData", "Cookie"} {
			for _, v := range []any{secret, []string{"a", secret}, map[string]any{"token": secret}} {
				var text any = map[string]any{"a": "before", name: v, "z": "behind"}
				for depth := range 4 {
					data, err := json.Marshal(text)
					if err != nil {
						t.Fatal(err)
					}
					got := Text(string(data))
					if strings.Contains(got, canary) || !strings.Contains(got, Mark) {
						t.Errorf("depth %d: %s became %s", depth, data, got)
					}
					if !strings.Contains(got, "before") || !strings.Contains(got, "behind") || !json.Valid([]byte(got)) {
						t.Errorf("depth %d: %s lost more than the credential: %s", depth, data, got)
					}
					text = map[string]any{"msg": string(data)}
				}
			}
		}
	}
	got := Text(`{"token": 12345, "secret": null, "auth": true, "tokens": []}`)
	if want := `{"token": "[redacted]", "secret": null, "auth": true, "tokens": []}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTextOfEachForm proves that the whole of a credential is dropped in the forms that programs print.
func TestTextOfEachForm(t *testing.T) {
	const canary = "c4n4ryc4n4ryc4n4ry"
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	key := "-----BEGIN PRIVATE KEY-----\n" + canary + "\n-----END PRIVATE KEY-----\n"
	for name, text := range map[string]string{
		"scheme Token":               "Authorization: Token " + canary,
		"scheme ApiKey":              "> authorization: ApiKey " + canary,
		"scheme of Splunk":           `curl -H 'Authorization: Splunk ` + canary + `' https://a`,
		"scheme with parameters":     "Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=" + canary,
		"scheme with quotes":         `Authorization: Digest username="a", response="` + canary + `"`,
		"header of a variable":       "HTTP_AUTHORIZATION=Token " + canary,
		"headers as Go prints them":  `map[Accept:[*/*] Authorization:[Token ` + canary + `] B:[c]]`,
		"headers as Go quotes them":  `http.Header{"Authorization":[]string{"Token ` + canary + `"}}`,
		"header behind an escape":    `"GET / HTTP/1.1\nAuthorization: Token ` + canary + `\nAccept: x"`,
		"registry's":                 `{"auths":{"r.example":{"auth":"` + canary + `"}}}`,
		"registry's in base64":       ".dockerconfigjson: " + encode(`{"auths":{"r.example":{"auth":"`+canary+`"}}}`),
		"short name":                 "DB_PASS=" + canary,
		"short name in camel case":   "dbPass: " + canary,
		"MySQL's":                    "env MYSQL_PWD=" + canary,
		"flag with user":             "--upstream-auth=user:" + canary,
		"flag with a value after it": "exec /proxy --api-token " + canary + " --v=2",
		"list of arguments":          `["/proxy", "--api-token", "` + canary + `"]`,
		"phrase":                     "password: correct horse " + canary,
		"environment with spaces":    "A=1\nDB_PASSWORD=a b " + canary + "\nC=2",
		"comma":                      "password=a," + canary,
		"bracket":                    "DB_PASSWORD=a]" + canary,
		"variable in JSON":           `{"name":"DB_PASSWORD","value":"` + canary + `"}`,
		"variable in JSON in JSON":   `{"a":"{\"name\":\"DB_PASSWORD\",\"value\":\"` + canary + `\"}"}`,
		"variable in YAML":           "- name: DB_PASSWORD\n  value: a " + canary + "\n",
		"variable as Go prints it":   "EnvVar{Name:DB_PASSWORD,Value:" + canary + ",ValueFrom:nil,}",
		"block of YAML":              "a: 1\n  password: |\n    x\n    " + canary + "\n  b: 2",
		"block behind a name":        "a:\n  password: >-\n    x " + canary + "\nb: 2",
		"block with an empty line":   "password: |\n  x\n\n  " + canary + "\nb: 2",
		"block of a variable":        "- name: DB_PASSWORD\n  value: |\n    a " + canary + "\nb: 2",
		"value in the next line":     "password:\n" + canary + " x",
		"list of YAML":               "tokens:\n- a\n- " + canary + "\nb: 2",
		"XML":                        "<password>" + canary + "</password>",
		"data source":                "user:" + canary + "@tcp(db:3306)/x",
		"URL with a strange user":    "postgres://a:b@c" + canary + "@db/x",
		"arrow":                      "password => " + canary,
		"key behind a new line":      encode("\n" + key),
		"key behind attributes":      "x " + encode("Bag Attributes\n"+key) + " y",
		"key in lines":               inLines(encode("Bag Attributes: of it\n"+key), "\n"),
		"key of a log that is cut":   canary + "\n" + canary + "\n-----END RSA PRIVATE KEY-----\nI0101 it goes on",
		"key in text that is cut":    `{"a":"` + canary + `\n-----END PRIVATE KEY-----\n"}`,
		"two keys, one cut":          canary + "\n-----END PRIVATE KEY-----\n" + key + canary + "\n-----END EC PRIVATE KEY-----",
		"token of GitHub":            "remote: github_pat_" + canary + "_x",
		"token of a GitHub app":      "ghs_" + canary + "aaaa",
		"token of GitLab":            "glpat-" + canary,
		"token of npm":               "npm_" + canary,
		"token of PyPI":              "pypi-" + canary,
		"token of Docker":            "login with dckr_pat_" + canary,
		"token of Vault":             "hvs." + canary,
		"key of OpenAI's form":       "sk-" + canary,
		"key of Stripe":              "sk_live_" + canary,
		"key of Google":              "key AIza" + canary,
		"token of Google":            "ya29." + canary,
		"key of age":                 "AGE-SECRET-KEY-1" + strings.ToUpper(canary) + canary,
		"key of SendGrid":            "SG." + canary + "." + canary,
		"token of Slack":             "xoxb-" + canary,
		"kubeadm's certificate key":  "kubeadm join --certificate-key " + canary,
		"kubeadm's configuration":    "certificateKey: " + canary,
		"curl -u":                    "run curl -u admin:" + canary + " https://a",
		"curl -sku":                  "curl -sku admin:" + canary + " https://a",
		"curl --user":                "curl -s --user 'admin:" + canary + "' https://a",
		"curl of a proxy":            "curl --proxy-user=admin:" + canary + " https://a",
		"scheme Negotiate":           "WWW-Authenticate: Negotiate " + canary + "==",
		"scheme NTLM":                "sent NTLM " + canary,
		"user without a scheme":      "dial admin:" + canary + "@db.example:5432 failed",
		"user before an address":     "proxy=admin:" + canary + "@10.0.0.1",
		"a sentence":                 "the password is " + canary,
		"a sentence in the past":     "password was \"" + canary + "\", now it is another",
		"a prompt":                   "Password for user admin: " + canary,
		"a prompt of ssh":            "passphrase for key /root/.ssh/id: " + canary,
		"a name with a value":        "passwd " + canary,
		"a refresh token":            "refresh_token " + canary + " used twice",
		"an API key":                 "apikey " + canary,
		"a token that was refused":   "token " + canary + " was refused",
		"a secret of AWS":            "using wJalrXUtn1EMI/" + canary + "9Kbey7zA",
		"key of PGP":                 "-----BEGIN PGP PRIVATE KEY BLOCK-----\n" + canary + "\n-----END PGP PRIVATE KEY BLOCK-----",
	} {
		for _, stamp := range []string{"", "2026-01-01T00:00:00.1Z ", "2026-01-01T10:00:00.123456789+02:00 ", "2026-01-01T10:00:00-03:30 "} {
			text := stamp + strings.ReplaceAll(text, "\n", "\n"+stamp) // as kubelet writes it
			got := Text(text)
			if strings.Contains(got, canary) || !strings.Contains(got, Mark) {
				t.Errorf("%s: %q became %q", name, text, got)
			}
			for _, part := range []string{"YzRuNHJ5", "M0bjRyeW", "jNG40cnlj"} { // it, in base64
				if strings.Contains(strings.ReplaceAll(got, "\n"+stamp, ""), part) {
					t.Errorf("%s: %q became %q", name, text, got)
				}
			}
			if again := Text(got); again != got {
				t.Errorf("%s: a second time, %q became %q", name, got, again)
			}
		}
	}
	if got := Text("a\n-----END PRIVATE KEY-----\nI0101 it goes on"); !strings.HasSuffix(got, "I0101 it goes on") {
		t.Errorf("what follows a key is lost: %q", got)
	}
	if got, want := Text("A=1\nDB_PASSWORD=a b\nC=2"), "A=1\nDB_PASSWORD="+Mark+"\nC=2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := Text("a: 1\npassword: |\n  x\n\n  y\nb: 2"), "a: 1\npassword: |\n"+Mark+"\nb: 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTextKeeps proves that text that only looks like a credential stays: support needs it.
func TestTextKeeps(t *testing.T) {
	cert := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n-----END CERTIFICATE-----\n"))
	for _, text := range []string{
		cert, "compass: north, bypass=x", "oauth2 flow", "the token expired", `clusterroles.rbac.authorization.k8s.io "a" is forbidden`, "--authorization-mode=Node,RBAC",
		`I0101 00:00:00.000000 1 server.go:1] "Agent connected" agentID="a" pod="kube-system/konnectivity-agent-x"`, "/var/lib/kubelet/pods/0a1b2c3d/volumes/kubernetes.io~projected/kube-api-access",
		"quay.example/a/b:v1.2@sha256:0123456789abcdef", "docker run -u 1000:1000 x", "mailto:a@example.com", "getting credentials: exec: executable aws not found",
		"password is required", "token is not valid", "the token v1beta1 has",
		"commit 0123456789abcdef0123456789abcdef01234567", "task-0123456789abcdefghij", "negotiate encryption with it", "secret kube-system/agent-x7k2p9 not found", "Password for user admin:",
		"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "--tls-private-key-file=/a", "key: value", "author: x",
	} {
		if got := Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
