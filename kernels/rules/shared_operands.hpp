// SPDX-License-Identifier: Apache-2.0
// Holds operands and attributes that ops of several families have alike.
#pragma once

#include "prun/op.hpp"

namespace prun::ops {

// If sequences have another order, ops that depend on the position get which one is where; otherwise a place
// is the position. If documents are kept apart, they get where each position's document begins.
inline constexpr OperandDef positions_operand = {"positions", Access::read, true};
inline constexpr OperandDef documents_operand = {"documents", Access::read, true};

// For ops that pass something on along sequences which ranks share out: `runs` says of how many a sequence
// consists (0: its positions are not in parts), `zigzag` whether they lie in the order of
// prun/sequence_order.hpp, and `over` to which axis of the mesh the ranks belong.
inline constexpr AttrDef runs_attr = later(int_attr("runs", 0)), zigzag_attr = later(int_attr("zigzag", 0)),
                         over_attr = later(int_attr("over", 0));
// An op that computes run by run knows the positions of one, and of how many chunks sequences consist that
// lie in an order of their own, as those of join_halo do.
inline constexpr AttrDef rows_attr = int_attr("rows", 1), chunks_attr = int_attr("chunks", 0);

// The bias of an LM head is one number for each word, which is added to its logits; it has a gradient too.
inline constexpr OperandDef head_bias = {"bias", Access::read, true};
inline constexpr OperandDef head_dbias = {"dbias", Access::update, true};
// Logits l become softcap * tanh(l / softcap), as in Gemma 2; 0: they stay as they are.
inline constexpr AttrDef head_softcap = later(real_attr("softcap", 0));

}  // namespace prun::ops
