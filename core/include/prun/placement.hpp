// SPDX-License-Identifier: Apache-2.0
// Says how values lie on the axes of the mesh, and describes state that a strategy keeps from step to step.
#pragma once

#include "prun/op.hpp"

namespace prun {

// Says what each coordinate of an axis has of a value.
enum class PlacementKind : std::uint8_t {
  replicated,  // all of it, alike
  sharded,     // its part of one dimension
  partial,     // a summand: the value is the sum over the axis
  maximum,     // the largest that it found: the value is the largest of all
  varying,     // a value of its own; nothing is said of the sum
};

// States the placement of a value on one axis of the mesh.
struct Lies {
  Text axis;
  PlacementKind kind = PlacementKind::replicated;
  Name dim = {};  // if it is sharded
};

// Describes an axis of the recipe's mesh. Ops that exchange over it name it by its number, in their
// attribute `axis`.
struct AxisInfo {
  std::int32_t number = -1;  // -1: prun has made two axes of it, and no single op exchanges over both
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

// Says what becomes of a state that is partial or varying where a run goes on with another number of ranks on
// its axes. Other states are cut anew, as parameters are.
enum class OnResize : std::uint8_t {
  refuse,  // the run is refused, unless run.changed names the strategy: then the state starts anew
  anew,    // it starts anew
  sum,     // the first coordinate gets the sum, the others zeros: for a partial state
};

// Describes what a segment keeps from step to step beside its parameters: each layer has one.
struct KeptState {
  Text name =
      {};  // unique among the segment's parameters and states, and part of a tensor's name in checkpoints
  Array<Dim> dims = {};
  // Without a type, it has that of statistics: fp32, or fp64 where that is computed in.
  bool typed = false;
  DType dtype = DType::f32;
  Init init = {};  // zeros, for what is partial or varying
  // On axes that `lies` does not name, dimensions that this parameter has too lie as they do there.
  Id like = none;
  Array<Lies> lies = {};
  // If set, ranks compare it where they have it alike, and `prun verify` compares it with one rank's.
  bool compared = true;
  OnResize on_resize = OnResize::refuse;
};

}  // namespace prun
