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
  // Queries, keys and values, as one projection writes them.
  const auto packed = [=](const Segment& g, std::int64_t seq, std::int64_t heads, std::int64_t slots) {
    return p(g, "x", {b, dim("seq", seq), dim("heads", heads), dim("packed", slots), dim("head_dim", 6)});
  };
  const auto joined = [](const Segment& g, const std::vector<Id>& heads) {
    return g.op("join_heads", {heads[0], heads[1], heads[2]});
  };
  const auto attention = [=](std::int64_t heads, std::int64_t slots, double causal, double window = 0) {
    return [=](const Segment& g) {
      const std::vector<Id> apart = g.ops("split_heads", {packed(g, 9, heads, slots)}, 3);
      return g.op("attention", {apart[0], apart[1], apart[2]}, {{"causal", causal}, {"window", window}});
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
      {"rmsnorm_from_one",
       [=](const Segment& g) {
         return g.op("rmsnorm", {p(g, "x", {b, s, h}), p(g, "gain", {h})}, {{"offset", 1.0}});
       }},
      {"rmsnorm_of_heads",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), q = dim("queries", 3), d = dim("head_dim", 4);
         return g.op("rmsnorm", {p(g, "x", {b, s, n, q, d}), p(g, "gain", {n, q, d})}, {{"dims", 3}});
       }},
      {"rope",
       [=](const Segment& g) {
         return joined(g, g.ops("rope", {packed(g, 5, 2, 4)}, 3, {{"base", 100.0}}));
       }},
      {"rope_slowed",
       [=](const Segment& g) {
         return joined(g, g.ops("rope", {packed(g, 5, 2, 4)}, 3,
                                {{"base", 100.0}, {"factor", 8.0}, {"original", 16.0}}));
       },
       1, false},
      {"rope_slower",
       [=](const Segment& g) {
         return joined(g, g.ops("rope", {packed(g, 5, 2, 4)}, 3,
                                {{"base", 100.0}, {"factor", 8.0}, {"scaling", 1}, {"query_scale", 1.5}}));
       },
       1, false},
      {"rope_by_pairs",
       [=](const Segment& g) {
         return joined(g, g.ops("rope", {packed(g, 5, 2, 4)}, 3,
                                {{"base", 100.0},
                                 {"factor", 8.0},
                                 {"original", 40.0},
                                 {"scaling", 2},
                                 {"query_scale", 0.8},
                                 {"key_scale", 1.3}}));
       },
       1, false},
      {"attention_causal", attention(2, 4, 1)},
      {"attention_full", attention(3, 3, 0)},
      {"attention_window", attention(2, 4, 1, 4)},
      {"attention_wide_window", attention(2, 4, 1, 20), 1, false},
      {"attention_apart",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4);
         return g.op("attention", {p(g, "q", {b, s, n, dim("queries", 3), d}), p(g, "k", {b, s, n, d}),
                                   p(g, "v", {b, s, n, d})});
       },
       1, false},
      {"attention_documents",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4);
         return g.op("attention",
                     {p(g, "q", {b, s, n, dim("queries", 3), d}), p(g, "k", {b, s, n, d}),
                      p(g, "v", {b, s, n, d}), g.op("document_starts", {g.tokens()}, {{"end", 3.0}})});
       },
       1, false},
      {"split_heads",
       [=](const Segment& g) {
         // In another order, so that each part's gradient is told from the others'.
         const std::vector<Id> apart = g.ops("split_heads", {packed(g, 5, 2, 4)}, 3);
         return joined(g, {apart[0], apart[2], g.op("scale", {apart[1]}, {{"factor", 3.0}})});
       },
       1, false},
      {"join_heads",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4);
         return joined(g, {p(g, "q", {b, s, n, dim("queries", 3), d}), p(g, "k", {b, s, n, d}),
                           p(g, "v", {b, s, n, d})});
       },
       1, false},
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
      {"geglu",
       [=](const Segment& g) {
         return g.op("geglu", {p(g, "x", {b, s, dim("gate", 2), h})});
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
