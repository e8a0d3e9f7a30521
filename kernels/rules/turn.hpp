// Holds what ops share that turn channels by their position (kernels/rope/rope.cpp,
// kernels/latent/latent.hpp).
#pragma once

#include "base/require.hpp"
#include "prun/named_operands.hpp"

namespace prun {

// `most` is the last kind that the op has: those that turn heads have lists.
inline void check_scaling(std::int64_t scaling, const char* op, std::int64_t most = 3) {
  require(scaling >= 0 && scaling <= most, op,
          ": scaling is 0 (by rounds, as Llama 3.1), 1 (all alike), 2 (by pairs, as YaRN), 3 (by places "
          "between pairs, as gpt-oss) or, of whole heads, 4 (by list, as longrope)");
}

// Emits the gradient op `kind` of all listed operands, which has the attributes of the op that turned, those
// named in `more` among them.
template <class... Names>
void turn_back(const Gradient& g, std::initializer_list<int> targets, const char* kind,
               std::initializer_list<Id> operands, Names... more) {
  g.inputs(targets, kind, operands,
           {{"base", g.attr("base")},
            {"factor", g.attr("factor")},
            {"low", g.attr("low")},
            {"high", g.attr("high")},
            {"original", g.attr("original")},
            {"scaling", g.attr("scaling")},
            {"query_scale", g.attr("query_scale")},
            {"key_scale", g.attr("key_scale")},
            {more, g.attr(more)}...});
}

template <class Op, std::size_t n, class... Names>
void turn_back(const GradientOf<Op>& g, const OperandOf<Op> (&targets)[n], const char* kind,
               std::initializer_list<Id> operands, Names... more) {
  const Gradient& all = g;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    turn_back(all, {targets[i].index...}, kind, operands, more...);
  }
  (std::make_index_sequence<n>());
}

}  // namespace prun
