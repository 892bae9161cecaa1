// SPDX-License-Identifier: Apache-2.0

// Package conversion converts objects of group fairlead.dev between versions. It is pure.
//
// Start with [Convert]. It works on decoded JSON, not on typed objects: what has the same
// place in both versions is not touched, and so an object of any form, also one that no
// longer validates, converts without an error. Only the fields in [kinds] move.
//
// # Nothing is lost
//
// A field may hold what the other version cannot express: a duration of 1500ms, an
// identifier of an unknown kind. Convert then keeps the original in an annotation,
// [LostV1alpha1] or [LostV1beta1], together with the closest value. On the way back it restores the
// original if that still converts to the value that the object has, and drops it otherwise,
// because then a client has changed the field.
//
// Package webhook, below, serves this to the API server.
package conversion
