// Holds what ops share that turn channels by their position (kernels/rope/rope.cpp,
// kernels/latent/latent.hpp).
#pragma once

#include "base/require.hpp"
#include "prun/named_gradient.hpp"

namespace prun {

// `most` is the last kind that the op has: those that turn heads have lists.
inline void check_scaling(std::int64_t scaling, const char* op, std::int64_t most = 3) {
  require(scaling >= 0 && scaling <= most, op,
          ": scaling is 0 (by rounds, as Llama 3.1), 1 (all alike), 2 (by pairs, as YaRN), 3 (by places "
          "between pairs, as gpt-oss) or, of whole heads, 4 (by list, as longrope)");
}

// Emits a gradient op of all listed operands, which has the attributes of the op that turned, those named in
// `more` among them.
template <class Emitted, class Op, std::size_t n, class... Names>
void turn_back(const GradientOf<Op>& g, const OperandOf<Op> (&targets)[n], GivenOperands<Emitted> given,
               Names... more) {
  const Gradient& all = g;
  input_gradient<Emitted>(g, targets, given,
                          {{"base", all.attr("base")},
                           {"factor", all.attr("factor")},
                           {"low", all.attr("low")},
                           {"high", all.attr("high")},
                           {"original", all.attr("original")},
                           {"scaling", all.attr("scaling")},
                           {"query_scale", all.attr("query_scale")},
                           {"key_scale", all.attr("key_scale")},
                           {more, all.attr(more)}...});
}

}  // namespace prun
