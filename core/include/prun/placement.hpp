// SPDX-License-Identifier: Apache-2.0
// Describes the placement of values on mesh axes, and state that a strategy keeps from step to step.
#pragma once

#include "prun/op.hpp"

namespace prun {

// Says what each coordinate of an axis has of a value.
enum class PlacementKind : std::uint8_t {
  replicated,  // all of it, identical
  sharded,     // its part of one dimension
  partial,     // a partial sum: the value is the sum over the axis
  maximum,     // a partial maximum: the value is the largest over the axis
  varying,     // a different value; their sum has no meaning
};

// States the placement of a value on one axis of the mesh.
struct Lies {
  Text axis;
  PlacementKind kind = PlacementKind::replicated;
  Name dim = {};  // if it is sharded
};

// Describes an axis of the recipe's mesh. Ops that communicate over it name it by its number, in their
// attribute `axis`.
struct AxisInfo {
  std::int64_t number = -1;  // -1: prun has made two axes of it, and no op communicates over both
  std::int64_t extent = 1;
};

// Says how a parameter or a state starts. Element values depend on (seed, name, index) alone, never on the
// layout.
struct Init {
  enum class Kind : std::uint8_t { constant, normal } kind = Kind::constant;
  double value = 0;  // the constant, or the standard deviation
};
constexpr Init zeros() { return {}; }
constexpr Init ones() { return {Init::Kind::constant, 1.0}; }
constexpr Init normal(double deviation) { return {Init::Kind::normal, deviation}; }

// Says what happens to a partial or varying state if a run resumes with another number of ranks on its axes.
// Other states are resharded, as parameters are.
enum class OnResize : std::uint8_t {
  refuse,  // the run is refused, unless run.allow_changed names the strategy: then the state starts anew
  anew,    // it starts from its initial value
  sum,     // the first coordinate gets the sum, the others zeros: for a partial state
};

// Describes state that a segment keeps from step to step in addition to its parameters: one per layer.
struct KeptState {
  Text name =
      {};  // unique among the segment's parameters and states, and part of a tensor's name in checkpoints
  Array<Dim> dims = {};
  // Without a type, it has that of statistics: fp32, or fp64 if precision.compute is fp64.
  bool typed = false;
  DType dtype = DType::f32;
  Init init = {};  // zeros, for what is partial or varying
  // Without `init`: it starts as the numbers of this parameter, before they are rounded to its type.
  Id starts_as = none;
  // On axes not listed in `lies`, dimensions that this parameter has too are placed as in it.
  Id like = none;
  Array<Lies> lies = {};
  // If set, ranks compare it where it is replicated, and `prun verify` compares it with one rank's.
  bool compared = true;
  OnResize on_resize = OnResize::refuse;
};

}  // namespace prun
