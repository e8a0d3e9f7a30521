// Holds what ops share that turn channels by their position (ops/rope.cpp, ops/latent.cpp).
#pragma once

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {

// Checks their sixth attribute, which is `scaling`.
inline void check_scaling(const OpShape& s, const char* op) {
  require(s.attrs[5].i >= 0 && s.attrs[5].i <= 2, op,
          ": scaling is 0 (by rounds, as Llama 3.1), 1 (all alike) or 2 (by pairs, as YaRN)");
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

}  // namespace prun
