// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the deprecated version of the API of group fairlead.dev. The API
// server converts its objects from and to v1beta1, by package
// pkg/apis/fairlead/conversion. Its Bundle has, as spec, the types of package
// pkg/bundle/v1alpha1. SchedulerProfile never had this version.
//
// +k8s:deepcopy-gen=package
// +groupName=fairlead.dev
package v1alpha1
