// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// The API server calls a validating webhook behind a Service through the
// tunnel.
// It observes KON-10 of docs/requirements.md.
func TestWebhook(t *testing.T) {
	run(t, "webhook", 2*time.Minute, step{"it refuses and admits", func(ctx context.Context, t *testing.T) {
		registerWebhook(ctx, t)
		create := func(ctx context.Context, labels map[string]string) error {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "reviewed-", Labels: labels}}
			_, err := suite.Client.CoreV1().ConfigMaps(harness.Namespace).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
		deny := map[string]string{harness.DenyLabel: "true"}
		// The API server learns of the webhook in a moment.
		err := harness.Wait(ctx, time.Minute, "the webhook to refuse", func(ctx context.Context) error {
			if err := create(ctx, deny); err == nil || !strings.Contains(err.Error(), harness.DenyMessage) {
				return fmt.Errorf("want %q, got %w", harness.DenyMessage, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := create(ctx, deny); err == nil || !strings.Contains(err.Error(), harness.DenyMessage) {
				t.Errorf("want %q, got %v", harness.DenyMessage, err)
			}
			if err := create(ctx, nil); err != nil {
				t.Errorf("without the label it must be admitted: %v", err)
			}
		}
	}})
}

func registerWebhook(ctx context.Context, t *testing.T) {
	t.Helper()
	registered(ctx, t, suite.RegisterWebhook)
}

// registered registers something of the server, until the test ends.
func registered(ctx context.Context, t *testing.T, register func(context.Context, []byte) (func(context.Context) error, error)) {
	t.Helper()
	remove, err := register(ctx, serverCA)
	if err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) {
		if err := remove(ctx); err != nil {
			t.Errorf("removing what was registered: %v", err)
		}
	})
}

// The API server reaches an aggregated API through the tunnel. As the front
// proxy it authenticates with its own certificate and passes on the user that
// it has authenticated. The extension API server accepts the user headers only
// with that certificate, which a separate CA signs.
// It observes AGG-02, AGG-06, AGG-07, AGG-08 and AGG-46 of docs/requirements.md.
// It also observes KON-10 of docs/requirements.md.
// It also observes OLD-93 and OLD-94 of docs/requirements.md.
func TestAggregatedAPI(t *testing.T) {
	run(t, "aggregated API", 4*time.Minute,
		step{"front proxy and clients have CAs of their own", func(ctx context.Context, t *testing.T) {
			front, err := suite.ReadFrontProxy(ctx)
			if err != nil || len(front.CA) == 0 || len(front.ClientCA) == 0 || string(front.CA) == string(front.ClientCA) {
				t.Errorf("%v\n%s\n%s", err, front.CA, front.ClientCA)
			}
			// AGG-08: all seven keys of the ConfigMap. kubeadm does not set the flag for the header with UIDs.
			uids := []string{"X-Remote-Uid"}
			if !suite.Simulated() {
				uids = nil
			}
			for name, lists := range map[string][2][]string{
				"names":     {front.Names, {"front-proxy-client"}},
				"usernames": {front.UsernameHeaders, {"X-Remote-User"}}, "UIDs": {front.UIDHeaders, uids},
				"groups": {front.GroupHeaders, {"X-Remote-Group"}}, "extra": {front.ExtraHeaderPrefix, {"X-Remote-Extra-"}},
			} {
				if got, want := lists[0], lists[1]; !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		}},
		step{"it learns who asks, and who is away", aggregated},
		step{"only the front proxy is accepted", func(ctx context.Context, t *testing.T) {
			// The Service proxy has no certificate of the front proxy.
			body, err := suite.Client.CoreV1().RESTClient().Get().Namespace(harness.Namespace).Resource("services").
				Name("https:" + harness.ServerName + ":https").SubResource("proxy").Suffix(harness.Whoami).Do(ctx).Raw()
			if !apierrors.IsForbidden(err) || !strings.Contains(fmt.Sprint(string(body), err), "only the front proxy") {
				t.Errorf("want a refusal by the server, got %q, %v", body, err)
			}
		}},
	)
}

func aggregated(ctx context.Context, t *testing.T) {
	registerAPI(ctx, t)
	var body []byte
	err := harness.Wait(ctx, time.Minute, "the aggregated API", func(ctx context.Context) (err error) {
		// The API server must not pass on the client's own user headers.
		body, err = suite.Client.CoreV1().RESTClient().Get().AbsPath(harness.Whoami).SetHeader("X-Remote-User", "mallory").Do(ctx).Raw()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var got http.Header
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if user := got.Values("X-Remote-User"); len(user) != 1 || user[0] != "kubernetes-admin" {
		t.Errorf("X-Remote-User = %v, want kubernetes-admin alone", user)
	}
	// kubeadm's administrator is in a group of its own, the embedded cluster's in system:masters.
	if groups := strings.Join(got.Values("X-Remote-Group"), ","); !strings.Contains(groups, "system:masters") && !strings.Contains(groups, "kubeadm:cluster-admins") {
		t.Errorf("X-Remote-Group = %s", groups)
	}
	wholeIdentity(ctx, t)
	withoutAgents(ctx, t)
}

// wholeIdentity asks as a user with a UID and extra values. All of that arrives, and nothing that the client itself sends
// under the names of the front proxy's headers.
func wholeIdentity(ctx context.Context, t *testing.T) {
	t.Helper()
	body, err := suite.Client.CoreV1().RESTClient().Get().AbsPath(harness.Whoami).
		SetHeader("Impersonate-User", "alice").SetHeader("Impersonate-Group", "system:masters").SetHeader("Impersonate-Uid", "alice-uid").
		SetHeader("Impersonate-Extra-example.org%2fteam", "blue").
		SetHeader("X-Remote-Uid", "mallory-uid").SetHeader("X-Remote-Group", "mallory-group").SetHeader("X-Remote-Extra-Mallory", "yes").Do(ctx).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var got http.Header
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for header, want := range map[string][]string{
		"X-Remote-User": {"alice"}, "X-Remote-Uid": {"alice-uid"}, "X-Remote-Group": {"system:masters", "system:authenticated"},
		"X-Remote-Extra-Example.org%2fteam": {"blue"}, "X-Remote-Extra-Mallory": nil,
	} {
		if !slices.Equal(got.Values(header), want) {
			t.Errorf("%s = %q, want %q", header, got.Values(header), want)
		}
	}
}

// withoutAgents stops the agents. The aggregated API is then unavailable until
// the agents are back, because its traffic goes through the tunnel.
func withoutAgents(ctx context.Context, t *testing.T) {
	agents := suite.Agents()
	atEnd(ctx, t, func(ctx context.Context) {
		if err := agents.Start(ctx); err != nil {
			t.Errorf("starting the agents: %v", err)
		}
	})
	if err := agents.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return suite.Client.CoreV1().RESTClient().Get().AbsPath(harness.Whoami).Do(ctx).Error()
	}
	err := harness.Wait(ctx, time.Minute, "the aggregated API to go away", func(ctx context.Context) error {
		if err := ask(ctx); !apierrors.IsServiceUnavailable(err) {
			return fmt.Errorf("want that it is unavailable, got %w", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := agents.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := harness.Wait(ctx, time.Minute, "the aggregated API to come back", ask); err != nil {
		t.Error(err)
	}
}

func registerAPI(ctx context.Context, t *testing.T) {
	t.Helper()
	registered(ctx, t, suite.RegisterAPI)
}
