// SPDX-License-Identifier: Apache-2.0

package pluginargs

import "k8s.io/apimachinery/pkg/runtime/schema"

// Arguments are runtime.Objects, because that is what a profile holds. They have no kind of their own: the plugin
// name in the profile determines their type.

// GetObjectKind implements runtime.Object.
func (a *TunnelReachArgs) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// GetObjectKind implements runtime.Object.
func (a *PolitePreemptionArgs) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// GetObjectKind implements runtime.Object.
func (a *ForeignNominationsArgs) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// GetObjectKind implements runtime.Object.
func (a *FailoverBarrierArgs) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
