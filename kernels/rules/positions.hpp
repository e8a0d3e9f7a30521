// Checks ops that depend on the position: if sequences have another order, they get which one is where
// (kernels/sequence/sequence.cpp), otherwise a place is the position. If documents are kept apart, they get
// where each position's document begins (kernels/documents/documents.cpp).
#pragma once

#include "base/require.hpp"
#include "prun/op.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun {

using ops::documents_operand;
using ops::positions_operand;

// Checks the operand `positions` beside x [batch, seq, ...].
inline void check_positions(const OpShape& s, int x, int positions, const char* op) {
  const OperandShape &of = s.operand[x], &given = s.operand[positions];
  if (given.present)
    require(given.rank == 1 && given.dtype == DType::i32 && of.rank > 1 && given.dims[0] == of.dims[1], op,
            " takes i32 positions [seq]");
}

// Checks the operand `documents` beside x [batch, seq, ...].
inline void check_documents(const OpShape& s, int x, int documents, const char* op) {
  const OperandShape &of = s.operand[x], &starts = s.operand[documents];
  if (starts.present)
    require(starts.rank == 2 && starts.dtype == DType::i32 && of.rank > 1 && starts.dims[0] == of.dims[0] &&
                starts.dims[1] == of.dims[1],
            op, " takes i32 documents [batch, seq]");
}

}  // namespace prun
