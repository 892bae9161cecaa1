// SPDX-License-Identifier: Apache-2.0

package apiserver

import "testing"

// TestVerifiesKubelets proves that the flag is found in each form that kube-apiserver accepts, and that nothing else is taken for it.
func TestVerifiesKubelets(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want bool
	}{
		"joined":          {[]string{"kube-apiserver", "--kubelet-certificate-authority=/ca.crt"}, true},
		"two arguments":   {[]string{"kube-apiserver", "--kubelet-certificate-authority", "/ca.crt", "--v=2"}, true},
		"underscores":     {[]string{"--kubelet_certificate_authority=/ca.crt"}, true},
		"kubeadm's flags": {[]string{"kube-apiserver", "--kubelet-client-certificate=/a.crt", "--client-ca-file=/ca.crt"}, false},
		"empty":           {[]string{"--kubelet-certificate-authority="}, false},
		"the last counts": {[]string{"--kubelet-certificate-authority=/ca.crt", "--kubelet-certificate-authority="}, false},
		"none":            {nil, false},
	} {
		if got := VerifiesKubelets(tc.args); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
