// Reads what an op that turns says of angles and pairs (kernels/rope_frequency.hpp): the host does so for all
// devices.
#pragma once

#include "prun/ops/rope.hpp"
#include "rope_frequency.hpp"

namespace prun {

// Reads the attributes that all ops which turn have.
template <class Op>
__attribute__((always_inline)) inline RopeTurn rope_turn(const Attr* attrs) {
  return {attrs[attr_of<Op>("base")].f,        attrs[attr_of<Op>("factor")].f,
          attrs[attr_of<Op>("low")].f,         attrs[attr_of<Op>("high")].f,
          attrs[attr_of<Op>("original")].f,    static_cast<RopeScaling>(attrs[attr_of<Op>("scaling")].i),
          attrs[attr_of<Op>("query_scale")].f, attrs[attr_of<Op>("key_scale")].f};
}

// Reads those of rope and its like besides, which have the same attributes.
__attribute__((always_inline)) inline RopeTurn rope_turn_of_heads(const Attr* attrs) {
  RopeTurn turn = rope_turn<ops::Rope>(attrs);
  turn.query_growth = attrs[attr_of<ops::Rope>("query_growth")].f;
  turn.turned_scale = attrs[attr_of<ops::Rope>("turned_scale")].f;
  if (turn.scaling == RopeScaling::by_list) turn.slower = attrs + ops::single_turn_attrs;
  return turn;
}
__attribute__((always_inline)) inline RopePairs rope_pairs(const Attr* attrs, std::int64_t head_dim) {
  constexpr int turned = attr_of<ops::Rope>("turned");
  return {(attrs[turned].i > 0 ? attrs[turned].i : head_dim) / 2,
          attrs[attr_of<ops::Rope>("interleaved")].i != 0};
}

}  // namespace prun
