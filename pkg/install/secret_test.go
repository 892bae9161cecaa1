// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestConflictsHideSecrets: what is said about a Secret that others own, or that is not what the
// bundle says, has no value of it. It goes into errors, events and the status of a Bundle.
func TestConflictsHideSecrets(t *testing.T) {
	secret := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "namespace": "n"},
			"data": map[string]any{"key": base64.StdEncoding.EncodeToString([]byte(value))},
		}}
	}
	live, wanted := secret("their value"), secret("our value")
	conflict := apierrors.NewApplyConflict([]metav1.StatusCause{
		{Type: metav1.CauseTypeFieldManagerConflict, Field: ".data.key", Message: `conflict with "cert-manager"`},
	}, "conflict")
	conflicts := conflictsOf(live, wanted, conflict)
	if len(conflicts) != 1 {
		t.Fatalf("%d conflicts", len(conflicts))
	}
	_, problem, err := (&client{party: Command}).judge(change{Ref: RefOf(live), live: live, merged: wanted, want: wanted}, false)
	if err != nil || problem == nil || len(problem.Conflicts) == 0 {
		t.Fatalf("%+v, %v", problem, err)
	}
	said := fmt.Sprintf("%+v %+v %s", conflicts, problem.Conflicts, (&BlockedError{Problems: []Problem{*problem}}).Error())
	for _, value := range []string{"their value", "our value"} {
		if strings.Contains(said, value) || strings.Contains(said, base64.StdEncoding.EncodeToString([]byte(value))) {
			t.Errorf("%q is in %s", value, said)
		}
	}
	if !strings.Contains(said, "data") || !strings.Contains(said, "***") {
		t.Errorf("the field is not named: %s", said)
	}
}
