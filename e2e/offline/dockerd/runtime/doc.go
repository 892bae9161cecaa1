// SPDX-License-Identifier: Apache-2.0

// Package runtime is a wrapper between dockerd, or Podman, and runc, for processes that may not have CAP_SYS_RESOURCE.
//
// A sandbox that takes this capability out of the bounding set cannot give it to a container either: runc fails to start
// privileged containers with "unable to apply caps: operation not permitted", and so do negative OOM scores and raised
// limits. [Main] takes these three out of the JSON that runc is about to read, and then becomes runc. [Needed] tells
// whether the sandbox is such a one; elsewhere the wrapper is not used.
package runtime
