// Checks and splits ops that pass something on along sequences which ranks share out: each part of a sequence
// is one run of positions or several. A strategy sets the attributes below, and split() then puts ops in such
// an op's place that compute run by run, and what the runs pass on to each other.
#pragma once

#include <cstdint>

#include "base/require.hpp"
#include "prun/op.hpp"
#include "prun/ops/shared_operands.hpp"
#include "prun/sequence_order.hpp"

namespace prun {

using ops::chunks_attr;
using ops::over_attr;
using ops::rows_attr;
using ops::runs_attr;
using ops::zigzag_attr;

struct Runs {
  std::int64_t rows = 0;  // positions of each; 0: sequences are whole
  std::int64_t count = 0, chunks = 0, axis = 0;

  // x is [batch, seq, ...]; the others are attributes.
  static Runs of(const OperandShape& x, std::int64_t runs, std::int64_t zigzag, std::int64_t over) {
    const std::int64_t seq = x.dims[1].extent;
    if (runs <= 0 || seq % runs != 0) return {};
    return {seq / runs, runs, zigzag != 0 ? runs : 0, over};
  }
};

// Requires a sequence of whole runs in operand x. Ranks that split heads as well do that before they split
// sequences.
inline void check_rows(OpShape& s, int x, std::int64_t rows, const char* op) {
  const OperandShape& of = s.operand[x];
  require(of.rank >= 3 && rows >= 1 && of.dims[1].extent % rows == 0, op,
          " takes sequences of whole runs, of `rows` positions each");
  s.prefer(of.dims[2].name);
}

}  // namespace prun
