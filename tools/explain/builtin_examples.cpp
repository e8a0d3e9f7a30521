#include "explain/builtin_examples.hpp"

namespace prun {
namespace {

namespace dims {

const Dim b{"batch", 2}, s{"seq", 4}, h{"hidden", 6}, out{"out", 8}, v{"vocab", 10};
const Dim n{"heads", 2}, q{"queries", 2}, d{"head_dim", 4}, packed{"packed", 4};
const Dim routes{"routes", 8}, choice{"choice", 2}, experts{"experts", 8}, gate{"gate", 2}, f{"ffn", 4};

}  // namespace dims

std::vector<OpExample> of_layers() {
  using namespace dims;
  return {
      OpExample("linear").values(0, {b, s, h}).values(1, {out, h}).values(2, {out}),
      OpExample("layernorm").values(0, {b, s, h}).values(1, {h}).values(2, {h}),
      OpExample("rmsnorm").values(0, {b, s, h}).values(1, {h}),
      OpExample("embedding").numbers(0, {b, s}, 0, 9).values(1, {v, h}),
      OpExample("add_position").values(0, {b, s, h}).values(1, {{"positions", 6}, h}),
      OpExample("attention")
          .values(0, {b, s, n, q, d})
          .values(1, {b, s, n, d})
          .values(2, {b, s, n, d})
          .attr("causal", 1),
      OpExample("attention_biased")
          .values(0, {b, s, n, q, d})
          .values(1, {b, s, n, d})
          .values(2, {b, s, n, d})
          .values(3, {n, {"buckets", 6}})
          .attr("causal", 1)
          .attr("distance", 8),
      OpExample("attention_packed").values(0, {b, s, n, packed, d}).attr("causal", 1),
  };
}

std::vector<OpExample> of_heads() {
  using namespace dims;
  return {
      OpExample("split_heads").values(0, {b, s, n, packed, d}).results({1, 2, 3}),
      OpExample("join_heads").values(0, {b, s, n, q, d}).values(1, {b, s, n, d}).values(2, {b, s, n, d}),
      OpExample("rope").values(0, {b, s, n, packed, d}).results({1, 2, 3}),
      OpExample("split_latent").values(0, {b, s, {"latents", 6}}).attr("turned", 2).results({1, 2}),
      OpExample("latent_heads")
          .values(0, {b, s, n, d})
          .values(1, {b, s, n, {"latent_head", 5}})
          .values(2, {b, s, {"turned", 2}})
          .attr("turned", 2)
          .attr("values", 3)
          .results({3, 4, 5}),
      OpExample("narrow_heads").values(0, {b, s, n, q, d}).attr("values", 3).attr("head_dim", 4),
  };
}

std::vector<OpExample> of_delta_rule() {
  using namespace dims;
  const Dim mixed{"mixed", 24}, channels{"channels", 16}, more{"heads", 4}, key{"key_dim", 4},
      value{"value_dim", 4}, both{"both", 4}, one{"one", 1}, taps{"taps", 4};
  return {
      OpExample("split_mixed")
          .values(0, {b, s, n, mixed})
          .attr("channels", 16)
          .attr("values", 2)
          .results({1, 2}),
      OpExample("short_conv").values(0, {b, s, n, channels}).values(1, {n, channels, one, taps}),
      OpExample("delta_heads")
          .values(0, {b, s, n, channels})
          .attr("key_dim", 4)
          .attr("values", 2)
          .results({1, 2, 3}),
      OpExample("delta_gates").values(0, {b, s, n, both}).values(1, {more}).values(2, {more}).results({3, 4}),
      OpExample("delta_rule")
          .values(0, {b, s, n, key})
          .values(1, {b, s, n, key}, -0.5, 0.5)
          .values(2, {b, s, more, value})
          .statistics(3, {b, s, more}, -1, -0.125)
          .statistics(4, {b, s, more}, 0.25, 0.75)
          .attr("chunk", 2),
      OpExample("output_gate").values(0, {b, s, n, d}).values(1, {b, s, n, d}),
      OpExample("split_gate").values(0, {b, s, n, packed, d}).results({1, 2}),
  };
}

std::vector<OpExample> of_experts() {
  using namespace dims;
  return {
      OpExample("gelu").values(0, {b, s, h}, -3, 3),
      OpExample("gelu_erf").values(0, {b, s, h}, -3, 3),
      OpExample("swiglu").values(0, {b, s, {"gate", 2}, h}, -2, 2),
      OpExample("sigmoid_gate").values(0, {b, s, h}).values(1, {b, s, {"one", 1}}),
      OpExample("router").values(0, {b, s, h}).values(1, {routes, h}),
      OpExample("route")
          .statistics(0, {b, s, routes}, -3, 3)
          .statistics(1, {routes})
          .attr("choices", 2)
          .attr("groups", 4)
          .attr("chosen_groups", 2)
          .results({3}),
      OpExample("experts")
          .values(0, {b, s, h})
          .numbers(1, {b, s, choice}, 0, 7)
          .statistics(2, {b, s, choice})
          .values(3, {experts, gate, f, h})
          .values(4, {experts, h, f})
          .attr("experts", 8),
      OpExample("cap_choices")
          .numbers(0, {b, s, choice}, 0, 7)
          .statistics(1, {b, s, choice})
          .attr("most", 1)
          .attr("experts", 8),
      OpExample("count_dropped")
          .numbers(0, {b, s, choice}, -1, 2)
          .numbers(1, {b, s}, -1, 9)
          .sums(2, {{"layer", 2}, {"all", 1}}),
      OpExample("send_rows")
          .values(0, {b, s, h})
          .numbers(1, {b, s, choice}, -1, 7)
          .attr("parts", 2)
          .attr("rows", 3)
          .attr("experts", 8),
      OpExample("send_choices")
          .numbers(0, {b, s, choice}, -1, 7)
          .statistics(1, {b, s, choice})
          .attr("parts", 4)
          .attr("rows", 2)
          .attr("experts", 8),
      OpExample("return_rows")
          .values(0, {{"experts", 4}, b, {"rows", 2}, h})
          .numbers(1, {b, s, choice}, -1, 7)
          .statistics(2, {{"experts", 4}, b, {"rows", 2}, choice})
          .attr("parts", 4)
          .attr("rows", 2)
          .attr("experts", 8),
      OpExample("count_rows")
          .numbers(0, {b, s, choice}, -1, 7)
          .sums(1, {{"layer", 2}, {"bound", 2}})
          .attr("parts", 4)
          .attr("rows", 2)
          .attr("experts", 8)
          .attr("mean", 1.5),
      OpExample("halt_beyond").sums(0, {{"layer", 2}, {"bound", 2}}).scalar(1, 0),
      OpExample("count_fp8_codes")
          .values(0, {b, {"seq", 256}, {"width", 256}})
          .scalar(1, 1)
          .sums(2, {{"place", 2}, {"number", 3}}),
      OpExample("peak_fp8_scales")
          .values(0, {b, {"seq", 256}, {"width", 256}})
          .scalar(1, 1)
          .sums(2, {{"place", 2}, {"number", 3}}),
      OpExample("balance")
          .statistics(0, {b, s, routes})
          .numbers(1, {b, s, choice}, 0, 7)
          .numbers(2, {b, s}, -1, 9)
          .scalar(3, 1)
          .sums(4, {{"layer", 2}, routes})
          .sums(5, {{"layer", 2}, {"kind", 2}})
          .attr("coefficient", 0.5)
          .attr("z", 0.1)
          .loss(5, 3),
  };
}

std::vector<OpExample> of_sums_and_copies() {
  using namespace dims;
  return {
      OpExample("add").values(0, {b, s, h}).values(1, {b, s, h}),
      OpExample("add_parts")
          .values(0, {b, s, n, packed, d})
          .values(1, {b, s, n, {"packed_0", 2}, d})
          .values(3, {b, s, n, {"packed_3", 1}, d})
          .attr("dim", 3)
          .attr("end_b", 2)
          .attr("begin_d", 3)
          .attr("end_d", 4),
      OpExample("pair").values(0, {b, s, h}).values(1, {b, s, h}),
      OpExample("scale").values(0, {b, s, h}).attr("factor", 0.5),
      OpExample("dropout")
          .values(0, {b, s, h})
          .numbers(1, {b}, 0, 99, DType::i64)
          .scalar(2, 12345)
          .attr("p", 0.5),
      OpExample("document_starts").numbers(0, {b, s}, 0, 3).attr("end", 2),
      OpExample("token_types").numbers(0, {b, s}, 0, 3).attr("separator", 2),
      OpExample("ahead").numbers(0, {b, s}, 0, 9).attr("by", 2).attr("otherwise", -1),
  };
}

std::vector<OpExample> of_losses() {
  using namespace dims;
  return {
      OpExample("lm_head")
          .values(0, {b, s, h})
          .values(1, {v, h})
          .numbers(2, {b, s}, -1, 9)
          .scalar(3, 0.25)
          .scalar(4, 0)
          .values(7, {v})
          .loss(4, 3),
      OpExample("lm_head_regularized")
          .values(0, {b, s, h})
          .values(1, {v, h})
          .numbers(2, {b, s}, -1, 9)
          .scalar(3, 0.25)
          .scalar(4, 0)
          .attr("z", 0.02)
          .attr("smoothing", 0.125)
          .loss(4, 3),
  };
}

}  // namespace

std::vector<OpExample> builtin_examples() {
  std::vector<OpExample> all;
  for (auto* const some : {of_layers, of_heads, of_delta_rule, of_experts, of_sums_and_copies, of_losses})
    for (const OpExample& example : some()) all.push_back(example);
  return all;
}

}  // namespace prun
