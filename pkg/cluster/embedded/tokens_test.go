// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// TestTokenOfRemadeAccount: a token that is not due is renewed if its service
// account or its node was deleted and made again, and only then. While the account
// is away the old token stays in the file.
func TestTokenOfRemadeAccount(t *testing.T) {
	ctx := t.Context()
	account := func(uid types.UID) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: uid}}
	}
	node := func(uid types.UID) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2", UID: uid}}
	}
	client := fake.NewClientset(account("a1"), node("n1"))
	tokens, down := 0, false
	client.PrependReactor("*", "*", func(action ktesting.Action) (bool, runtime.Object, error) {
		if down {
			return true, nil, errors.New("connection refused")
		}
		if action.GetVerb() != "create" || action.GetSubresource() != "token" {
			return false, nil, nil
		}
		tokens++
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: fmt.Sprintf("token %d", tokens), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
		}}, nil
	})
	p := Projection{Namespace: "ns", ServiceAccount: "sa", Node: "node-2", File: filepath.Join(t.TempDir(), "token")}
	accounts, nodes := client.CoreV1().ServiceAccounts("ns"), client.CoreV1().Nodes()
	var k kept
	for _, step := range []struct {
		what   string
		before func(context.Context) error
		want   string
		fails  bool
	}{
		{"the first", nil, "token 1", false},
		{"nothing happened", nil, "token 1", false},
		{"the API server is away", func(context.Context) error { down = true; return nil }, "token 1", false},
		{"it is back", func(context.Context) error { down = false; return nil }, "token 1", false},
		{"account deleted", func(ctx context.Context) error { return accounts.Delete(ctx, "sa", metav1.DeleteOptions{}) }, "token 1", true},
		{"account remade", func(ctx context.Context) error {
			_, err := accounts.Create(ctx, account("a2"), metav1.CreateOptions{})
			return err
		}, "token 2", false},
		{"nothing happened again", nil, "token 2", false},
		{"node remade between two looks", func(ctx context.Context) error {
			if err := nodes.Delete(ctx, "node-2", metav1.DeleteOptions{}); err != nil {
				return err
			}
			_, err := nodes.Create(ctx, node("n2"), metav1.CreateOptions{})
			return err
		}, "token 3", false},
	} {
		if step.before != nil {
			if err := step.before(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.refresh(ctx, client, &k); (err != nil) != step.fails {
			t.Errorf("%s: error %v", step.what, err)
		}
		if got, err := os.ReadFile(p.File); err != nil || string(got) != step.want {
			t.Errorf("%s: the file holds %q, want %q (%v)", step.what, got, step.want, err)
		}
	}
}
