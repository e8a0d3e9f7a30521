// Every differentiable op, as a segment whose parameters are its operands.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "program/passes.hpp"

namespace prun::test {

struct OpCase {
  std::string name;                         // as in the PyTorch fixtures
  std::function<Id(const Segment&)> build;  // returns the result; none for lm_head, whose result is the loss
  double spread = 1;                        // of the random operands
  bool in_torch = true;
};

inline void PrintTo(const OpCase& op, std::ostream* out) { *out << op.name; }

inline Dim dim(const char* name, std::int64_t extent) { return {name, extent}; }

inline std::vector<OpCase> op_cases() {
  const Dim b = dim("batch", 2), s = dim("seq", 5), h = dim("hidden", 6), v = dim("vocab", 11);
  const auto p = [](const Segment& g, const char* name, std::initializer_list<Dim> dims) {
    return g.vector(name, dims, zeros());
  };
  const auto packed = [](std::int64_t seq, std::int64_t heads, std::int64_t slots) {
    return std::vector<Dim>{dim("batch", 2), dim("seq", seq), dim("heads", heads), dim("packed", slots),
                            dim("head_dim", 6)};
  };
  const auto attention = [=](std::int64_t heads, std::int64_t slots, double causal) {
    return [=](const Segment& g) {
      const auto d = packed(9, heads, slots);
      return g.op("attention", {p(g, "x", {d[0], d[1], d[2], d[3], d[4]})}, {{"causal", causal}});
    };
  };
  return {
      {"embedding",
       [=](const Segment& g) {
         return g.op("embedding", {g.tokens(), p(g, "table", {v, h})});
       }},
      {"add_position",
       [=](const Segment& g) {
         return g.op("add_position", {p(g, "x", {b, s, h}), p(g, "table", {dim("positions", 7), h})});
       }},
      {"linear",
       [=](const Segment& g) {
         return g.op("linear", {p(g, "x", {b, s, h}), p(g, "weight", {dim("out", 9), h}),
                                p(g, "bias", {dim("out", 9)})});
       }},
      {"linear_no_bias_3",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), q = dim("queries", 1), d = dim("head_dim", 3);
         return g.op("linear", {p(g, "x", {b, s, n, q, d}), p(g, "weight", {h, n, q, d}), none},
                     {{"in_dims", 3}});
       },
       1, false},
      {"layernorm",
       [=](const Segment& g) {
         return g.op("layernorm", {p(g, "x", {b, s, h}), p(g, "gain", {h}), p(g, "bias", {h})});
       }},
      {"rmsnorm",
       [=](const Segment& g) {
         return g.op("rmsnorm", {p(g, "x", {b, s, h}), p(g, "gain", {h})});
       }},
      {"rope",
       [=](const Segment& g) {
         const auto d = packed(5, 2, 4);
         return g.op("rope", {p(g, "x", {d[0], d[1], d[2], d[3], d[4]})}, {{"base", 100.0}});
       }},
      {"attention_causal", attention(2, 4, 1)},
      {"attention_full", attention(3, 3, 0)},
      {"gelu",
       [=](const Segment& g) {
         return g.op("gelu", {p(g, "x", {b, s, h})});
       },
       3},
      {"swiglu",
       [=](const Segment& g) {
         return g.op("swiglu", {p(g, "x", {b, s, dim("gate", 2), h})});
       },
       2},
      {"add",
       [=](const Segment& g) {
         return g.op("add", {p(g, "a", {b, s, h}), p(g, "b", {b, s, h})});
       }},
      {"scale",
       [=](const Segment& g) {
         return g.op("scale", {p(g, "x", {b, s, h})}, {{"factor", 0.37}});
       }},
      {"dropout",
       [=](const Segment& g) {
         return g.op("dropout", {p(g, "x", {b, s, h}), g.samples(), g.runtime("seed")}, {{"p", 0.4}});
       },
       1, false},
      {"lm_head",
       [=](const Segment& g) {
         g.op("lm_head", {p(g, "x", {b, s, h}), p(g, "weight", {v, h}), g.targets(), g.runtime("inv_targets"),
                          g.runtime("loss_sum")});
         return none;
       }},
  };
}

}  // namespace prun::test
