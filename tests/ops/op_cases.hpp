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
  const char *loss = "loss_sum", *loss_scale = "inv_targets";  // of one without a result
  const char* fixtures = "ops";
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
  // Scores of 8 experts, and which of them are chosen with which weights.
  struct Routing {
    double choices = 2, sigmoid = 0, normalise = 1, groups = 1, chosen_groups = 1, group_best = 2, scale = 1;
  };
  const auto scored = [=](const Segment& g) {
    return g.op("router", {p(g, "x", {b, s, h}), p(g, "weight", {dim("routes", 8), h})});
  };
  const auto chosen = [=](const Segment& g, Id logits, const Routing& r) {
    return g.ops("route", {logits, none}, 2,
                 {{"choices", r.choices},
                  {"sigmoid", r.sigmoid},
                  {"normalise", r.normalise},
                  {"groups", r.groups},
                  {"chosen_groups", r.chosen_groups},
                  {"group_best", r.group_best},
                  {"scale", r.scale}});
  };
  const auto routed = [=](const Routing& r) {
    return [=](const Segment& g) { return chosen(g, scored(g), r)[1]; };
  };
  // most: positions of a sequence that an expert takes; 0: all.
  const auto experts = [=](const Routing& r, double most = 0, bool by_weight = true) {
    return [=](const Segment& g) {
      const Dim e = dim("experts", 8), f = dim("ffn", 4);
      const std::vector<Id> to = chosen(g, scored(g), r);
      const Id kept = most == 0 ? to[0]
                                : g.op("cap_choices", {to[0], by_weight ? to[1] : none},
                                       {{"most", most}, {"experts", 8}});
      return g.op("experts",
                  {p(g, "values", {b, s, h}), kept, to[1], p(g, "up", {e, dim("gate", 2), f, h}),
                   p(g, "down", {e, h, f})},
                  {{"experts", 8.0}});
    };
  };
  const auto biased = [=](double limit, double alpha) {
    return [=](const Segment& g) {
      const Dim e = dim("experts", 8), f = dim("ffn", 4), gate = dim("gate", 2);
      const std::vector<Id> to = chosen(g, scored(g), {});
      const Id y = g.op("biased_experts",
                        {p(g, "values", {b, s, h}), to[0], to[1], p(g, "up", {e, gate, f, h}),
                         p(g, "down", {e, h, f}), p(g, "up_bias", {e, gate, f})},
                        {{"experts", 8.0}, {"limit", limit}, {"alpha", alpha}});
      return g.op("add", {y, g.op("expert_biases", {to[0], to[1], p(g, "down_bias", {e, h})})});
    };
  };
  const auto balanced = [=](double sigmoid) {
    return [=](const Segment& g) {
      const Id logits = scored(g);
      const std::vector<Id> to = chosen(g, logits, {.sigmoid = sigmoid});
      g.ops("balance",
            {logits, to[0], g.targets(), g.runtime("inv_sequences"), g.tally("counts", {dim("routes", 8)}),
             g.tally("losses", {dim("kind", 2)})},
            0, {{"sigmoid", sigmoid}, {"coefficient", 0.3}, {"z", 0.1}});
      return none;
    };
  };
  const auto of_experts = [](const char* name, std::function<Id(const Segment&)> build) {
    return OpCase{name, std::move(build), 1, true, "case.losses", "one", "experts"};
  };
  // A delta rule of two key heads with two values each, from what is in front of it. Documents end with
  // token 4.
  const auto delta = [=](double chunk, bool apart) {
    return [=](const Segment& g) {
      const Dim n = dim("heads", 1), q = dim("queries", 2), both = dim("queries", 4);
      const Id documents = apart ? g.op("document_starts", {g.tokens()}, {{"end", 4}}) : none;
      const std::vector<Id> mixed = g.ops("split_mixed", {p(g, "x", {b, s, n, q, dim("mixed", 20)})}, 2,
                                          {{"channels", 12}, {"values", 2}});
      const std::vector<Id> made = g.ops(
          "short_conv",
          {mixed[0], p(g, "taps", {n, q, dim("channels", 12), dim("one", 1), dim("taps", 3)}), documents}, 2);
      const std::vector<Id> heads =
          g.ops("delta_heads", {made[0]}, 3, {{"key_dim", 2}, {"values", 2}, {"eps", 1e-6}});
      const std::vector<Id> gates = g.ops(
          "delta_gates",
          {p(g, "shares", {b, s, n, q, dim("both", 4)}), p(g, "rate", {n, both}), p(g, "bias", {n, both})},
          2);
      const Id y = g.ops("delta_rule", {heads[0], heads[1], heads[2], gates[0], gates[1], documents}, 2,
                         {{"chunk", chunk}})[0];
      return g.op("output_gate", {y, mixed[1]}, {{"silu", 1}});
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
      {"latent_heads",
       [=](const Segment& g) {
         const Dim n = dim("heads", 3);
         const std::vector<Id> apart =
             g.ops("split_latent", {p(g, "latents", {b, s, dim("latents", 6)})}, 2, {{"turned", 4}});
         const Id kv =
             g.op("linear", {apart[0], p(g, "up", {n, dim("latent_head", 8), dim("latent", 2)}), none});
         const std::vector<Id> heads =
             g.ops("latent_heads", {p(g, "x", {b, s, n, dim("head_dim", 9)}), kv, apart[1]}, 3,
                   {{"base", 100.0}, {"query_scale", 1.5}, {"key_scale", 0.8}, {"turned", 4}, {"values", 3}});
         return g.op("narrow_heads", {g.op("attention", {heads[0], heads[1], heads[2]})},
                     {{"values", 3}, {"head_dim", 9}});
       },
       1, true, "loss_sum", "inv_targets", "latent"},
      {"split_latent",
       [=](const Segment& g) {
         const std::vector<Id> apart =
             g.ops("split_latent", {p(g, "x", {b, s, dim("latents", 7)})}, 2, {{"turned", 4}});
         const Id up = p(g, "up", {dim("turned", 4), dim("latent", 3)});
         return g.op("add", {g.op("linear", {apart[0], up, none}), apart[1]});
       },
       1, false},
      {"narrow_heads",
       [=](const Segment& g) {
         return g.op("narrow_heads",
                     {p(g, "x", {b, s, dim("heads", 2), dim("queries", 1), dim("head_dim", 6)})},
                     {{"values", 4}, {"head_dim", 6}});
       },
       1, false},
      {"latent_heads_by_halves",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2);
         const std::vector<Id> heads =
             g.ops("latent_heads",
                   {p(g, "x", {b, s, n, dim("head_dim", 6)}), p(g, "kv", {b, s, n, dim("latent_head", 8)}),
                    p(g, "shared", {b, s, dim("turned", 4)})},
                   3, {{"base", 100.0}, {"turned", 4}, {"values", 6}, {"interleaved", 0}});
         return joined(g, heads);
       },
       1, false},
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
      {"rope_in_part",
       [=](const Segment& g) {
         return joined(g, g.ops("rope", {packed(g, 5, 2, 8)}, 3,
                                {{"base", 100.0}, {"turned", 6}, {"query_scale", 0.8}, {"key_scale", 1.3}}));
       },
       1, false},
      {"rope_neighbours",
       [=](const Segment& g) {
         return joined(g, g.ops("rope", {packed(g, 5, 2, 8)}, 3,
                                {{"base", 100.0},
                                 {"turned", 4},
                                 {"interleaved", 1},
                                 {"original", 2.0},
                                 {"query_growth", 0.7}}));
       },
       1, false},
      {"rope_listed",
       [=](const Segment& g) {
         return joined(g, g.ops("rope", {packed(g, 5, 2, 8)}, 3,
                                {{"base", 100.0},
                                 {"scaling", 4},
                                 {"turned", 4},
                                 {"query_scale", 0.8},
                                 {"turned_scale", 1.4},
                                 {"slower_00", 1.5},
                                 {"slower_01", 0.7}}));
       },
       1, false},
      {"attention_causal", attention(2, 4, 1)},
      {"attention_full", attention(3, 3, 0)},
      {"attention_window", attention(2, 4, 1, 4)},
      {"attention_wide_window", attention(2, 4, 1, 20), 1, false},
      {"attention_sink",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), q = dim("queries", 3), d = dim("head_dim", 4);
         return g.op("attention",
                     {p(g, "q", {b, s, n, q, d}), p(g, "k", {b, s, n, d}), p(g, "v", {b, s, n, d}), none,
                      p(g, "sink", {n, q})},
                     {{"window", 3}});
       },
       1, false},
      {"attention_across_sink",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), q = dim("queries", 3), d = dim("head_dim", 4),
                   all = dim("context", 5);
         return g.op("attention_across", {p(g, "q", {b, s, n, q, d}), p(g, "k", {b, all, n, d}),
                                          p(g, "v", {b, all, n, d}), none, p(g, "sink", {n, q})});
       },
       1, false},
      {"router_bias",
       [=](const Segment& g) {
         const Dim routes = dim("routes", 8);
         const Id logits =
             g.op("router", {p(g, "x", {b, s, h}), p(g, "weight", {routes, h}), p(g, "bias", {routes})});
         return chosen(g, logits, {})[1];
       },
       1, false},
      {"expert_biases",
       [=](const Segment& g) {
         const std::vector<Id> to = chosen(g, scored(g), {});
         return g.op("expert_biases", {to[0], to[1], p(g, "bias", {dim("experts", 8), h})});
       },
       1, false},
      {"biased_experts", biased(0, 1), 1, false},
      {"biased_experts_bounded", biased(0.4, 1.7), 1, false},
      {"attention_softcap",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4);
         return g.op(
             "attention",
             {p(g, "q", {b, s, n, dim("queries", 3), d}), p(g, "k", {b, s, n, d}), p(g, "v", {b, s, n, d})},
             {{"softcap", 0.8}});
       },
       2, false},
      {"attention_across_softcap",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4), all = dim("context", 5);
         return g.op("attention_across",
                     {p(g, "q", {b, s, n, dim("queries", 3), d}), p(g, "k", {b, all, n, d}),
                      p(g, "v", {b, all, n, d})},
                     {{"softcap", 0.8}});
       },
       2, false},
      {"attention_dropped",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4);
         return g.op(
             "attention",
             {p(g, "q", {b, s, n, dim("queries", 3), d}), p(g, "k", {b, s, n, d}), p(g, "v", {b, s, n, d}),
              none, p(g, "sink", {n, dim("queries", 3)}), g.samples(), g.runtime("seed")},
             {{"softcap", 0.8}, {"p", 0.4}, {"stream", 7}});
       },
       2, false},
      {"attention_near_dropped",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4);
         return g.op("attention",
                     {p(g, "q", {b, s, n, dim("queries", 2), d}), p(g, "k", {b, s, n, d}),
                      p(g, "v", {b, s, n, d}), none, none, g.samples(), g.runtime("seed")},
                     {{"causal", 0}, {"window", 3}, {"p", 0.3}});
       },
       1, false},
      {"attention_across_dropped",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4), all = dim("context", 5);
         return g.op("attention_across",
                     {p(g, "q", {b, s, n, dim("queries", 3), d}), p(g, "k", {b, all, n, d}),
                      p(g, "v", {b, all, n, d}), none, none, g.samples(), g.runtime("seed")},
                     {{"p", 0.4}, {"stream", 7}});
       },
       1, false},
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
      {"attention_across",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4), all = dim("context", 5);
         return g.op("attention_across", {p(g, "q", {b, s, n, dim("queries", 3), d}),
                                          p(g, "k", {b, all, n, d}), p(g, "v", {b, all, n, d})});
       },
       1, false},
      {"attention_across_zigzag",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4), part = dim("seq", 8), all = dim("context", 8);
         return g.op("attention_across",
                     {p(g, "q", {b, part, n, dim("queries", 2), d}), p(g, "k", {b, all, n, d}),
                      p(g, "v", {b, all, n, d})},
                     {{"chunk", 2.0}, {"chunks", 4.0}});
       },
       1, false},
      {"attention_across_ahead",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4), part = dim("seq", 8), near = dim("seq", 14);
         return g.op("attention_across",
                     {p(g, "q", {b, part, n, dim("queries", 2), d}), p(g, "k", {b, near, n, d}),
                      p(g, "v", {b, near, n, d})},
                     {{"window", 3.0}, {"ahead", 3.0}, {"parts", 2.0}});
       },
       1, false},
      {"as_context",
       [=](const Segment& g) {
         return g.op("as_context", {p(g, "x", {b, dim("seq", 8), h})}, {{"chunk", 2.0}, {"chunks", 4.0}});
       },
       1, false},
      {"as_seq",
       [=](const Segment& g) {
         return g.op("as_seq", {p(g, "x", {b, dim("context", 8), h})}, {{"chunk", 2.0}, {"chunks", 4.0}});
       },
       1, false},
      {"rope_apart",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 6);
         return joined(g, g.ops("rope_apart",
                                {p(g, "x", {b, s, n, dim("queries", 2), d}),
                                 p(g, "kv", {b, s, n, dim("packed", 2), d})},
                                3, {{"base", 100.0}}));
       },
       1, false},
      {"split_heads_apart",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 6);
         const std::vector<Id> apart = g.ops(
             "split_heads_apart",
             {p(g, "x", {b, s, n, dim("queries", 2), d}), p(g, "kv", {b, s, n, dim("packed", 2), d})}, 3);
         return joined(g, {apart[0], apart[2], g.op("scale", {apart[1]}, {{"factor", 3.0}})});
       },
       1, false},
      {"join_heads_apart",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 4);
         const std::vector<Id> two = g.ops(
             "join_heads_apart",
             {p(g, "q", {b, s, n, dim("queries", 3), d}), p(g, "k", {b, s, n, d}), p(g, "v", {b, s, n, d})},
             2);
         return joined(g, g.ops("split_heads_apart", {two[0], two[1]}, 3));
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
      {"gelu_erf",
       [=](const Segment& g) {
         return g.op("gelu_erf", {p(g, "x", {b, s, h})});
       },
       3, false},
      {"swiglu",
       [=](const Segment& g) {
         return g.op("swiglu", {p(g, "x", {b, s, dim("gate", 2), h})});
       },
       2},
      {"geglu_erf",
       [=](const Segment& g) {
         return g.op("geglu_erf", {p(g, "x", {b, s, dim("gate", 2), h})});
       },
       2, false},
      {"attention_near",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), q = dim("queries", 2), d = dim("head_dim", 4);
         return g.op("attention",
                     {p(g, "q", {b, s, n, q, d}), p(g, "k", {b, s, n, d}), p(g, "v", {b, s, n, d})},
                     {{"causal", 0}, {"window", 2}});
       },
       1, false},
      {"geglu",
       [=](const Segment& g) {
         return g.op("geglu", {p(g, "x", {b, s, dim("gate", 2), h})});
       },
       2},
      of_experts("sigmoid_gate",
                 [=](const Segment& g) {
                   return g.op("sigmoid_gate", {p(g, "x", {b, s, h}), p(g, "gate", {b, s, dim("one", 1)})});
                 }),
      {"split_mixed_short_conv_delta_heads_delta_gates_delta_rule", delta(64, false), 1, false},
      {"delta_rule_in_chunks", delta(2, false), 1, false},
      {"delta_rule_one_by_one", delta(1, false), 1, false},
      {"delta_rule_documents", delta(2, true), 1, false},
      {"delta_rule_documents_in_one_chunk", delta(64, true), 1, false},
      {"split_gate_output_gate",
       [=](const Segment& g) {
         const std::vector<Id> apart = g.ops("split_gate", {p(g, "x", {b, s, dim("queries", 4), h})}, 2);
         return g.op("output_gate", {apart[0], apart[1]});
       },
       1, false},
      of_experts("router", scored),
      of_experts("route_softmax", routed({.choices = 3, .normalise = 0})),
      of_experts("route_normalised", routed({})),
      of_experts("route_groups",
                 routed({.normalise = 0, .groups = 4, .chosen_groups = 2, .group_best = 1, .scale = 2.5})),
      of_experts("route_sigmoid",
                 routed({.choices = 3, .sigmoid = 1, .groups = 4, .chosen_groups = 2, .scale = 2.5})),
      of_experts("experts", experts({})),
      of_experts("experts_one", experts({.choices = 1, .sigmoid = 1, .normalise = 0})),
      {"experts_capped", experts({}, 1), 1, false},
      {"experts_first_come", experts({.choices = 3, .normalise = 0}, 1, false), 1, false},
      of_experts("balance", balanced(0)),
      of_experts("balance_sigmoid", balanced(1)),
      {"add",
       [=](const Segment& g) {
         return g.op("add", {p(g, "a", {b, s, h}), p(g, "b", {b, s, h})});
       }},
      {"pair",
       [=](const Segment& g) {
         return g.op("pair", {p(g, "a", {b, s, h}), p(g, "b", {b, s, h})});
       },
       1, false},
      {"add_parts",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), d = dim("head_dim", 3);
         return g.op(
             "add_parts",
             {p(g, "a", {b, s, n, dim("packed", 5), d}), p(g, "b", {b, s, n, dim("packed_0", 2), d}),
              p(g, "c", {b, s, n, dim("packed_2", 1), d}), p(g, "d", {b, s, n, dim("packed_4", 1), d})},
             {{"dim", 3.0},
              {"end_b", 2.0},
              {"begin_c", 2.0},
              {"end_c", 3.0},
              {"begin_d", 4.0},
              {"end_d", 5.0}});
       },
       1, false},
      {"scale",
       [=](const Segment& g) {
         return g.op("scale", {p(g, "x", {b, s, h})}, {{"factor", 0.37}});
       }},
      {"dropout",
       [=](const Segment& g) {
         return g.op("dropout", {p(g, "x", {b, s, h}), g.samples(), g.runtime("seed")}, {{"p", 0.4}});
       },
       1, false},
      {"attention_biased",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), q = dim("queries", 2), d = dim("head_dim", 3), nine = dim("seq", 9);
         return g.op("attention_biased",
                     {p(g, "q", {b, nine, n, q, d}), p(g, "k", {b, nine, n, d}), p(g, "v", {b, nine, n, d}),
                      p(g, "table", {n, dim("buckets", 6)})},
                     {{"causal", 1}, {"distance", 7}, {"scale", 0.7}});
       },
       1, false},
      {"attention_biased_both",
       [=](const Segment& g) {
         const Dim n = dim("heads", 2), q = dim("queries", 1), d = dim("head_dim", 3), nine = dim("seq", 9);
         return g.op("attention_biased",
                     {p(g, "q", {b, nine, n, q, d}), p(g, "k", {b, nine, n, d}), p(g, "v", {b, nine, n, d}),
                      p(g, "table", {n, dim("buckets", 8)})},
                     {{"causal", 0}, {"distance", 6}});
       },
       1, false},
      {"lm_head_with_bias",
       [=](const Segment& g) {
         g.op("lm_head", {p(g, "x", {b, s, dim("width", 6)}), p(g, "weight", {v, h}), g.targets(),
                          g.runtime("inv_targets"), g.runtime("loss_sum"), none, p(g, "bias", {v})});
         return none;
       },
       1, false},
      {"lm_head_regularized",
       [=](const Segment& g) {
         g.op("lm_head_regularized",
              {p(g, "x", {b, s, h}), p(g, "weight", {v, h}), g.targets(), g.runtime("inv_targets"),
               g.runtime("loss_sum")},
              {{"z", 0.05}, {"smoothing", 0.2}});
         return none;
       },
       1, false},
      {"lm_head_softcap",
       [=](const Segment& g) {
         g.op("lm_head",
              {p(g, "x", {b, s, h}), p(g, "weight", {v, h}), g.targets(), g.runtime("inv_targets"),
               g.runtime("loss_sum")},
              {{"softcap", 0.9}});
         return none;
       },
       1, false},
      {"lm_head_regularized_softcap",
       [=](const Segment& g) {
         g.op("lm_head_regularized",
              {p(g, "x", {b, s, h}), p(g, "weight", {v, h}), g.targets(), g.runtime("inv_targets"),
               g.runtime("loss_sum")},
              {{"z", 0.05}, {"smoothing", 0.2}, {"softcap", 0.9}});
         return none;
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
