// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/crd/internal/crdtest"
)

type (
	testCase   = crdtest.Case
	objectCase = crdtest.ObjectCase
)

// TestCases proves that lint and validate say what the data in testdata/cases expects.
// TestAgainstAPIServer proves that a kube-apiserver says the same.
func TestCases(t *testing.T) {
	testutil.Full(t, "the packages lint and validate judge the same cases")
	for _, c := range crdtest.Cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			crdtest.CheckDefinition(t, c)
			crdtest.CheckObjects(t, c)
		})
	}
}
