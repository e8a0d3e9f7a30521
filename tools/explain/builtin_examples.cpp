#include "explain/builtin_examples.hpp"

namespace prun {

std::vector<OpExample> builtin_examples() {
  const Dim b{"batch", 2}, s{"seq", 4}, h{"hidden", 6}, out{"out", 8}, v{"vocab", 10};
  const Dim n{"heads", 2}, q{"queries", 2}, d{"head_dim", 4}, packed{"packed", 4};
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
      OpExample("attention_packed").values(0, {b, s, n, packed, d}).attr("causal", 1),
      OpExample("split_heads").values(0, {b, s, n, packed, d}).results({1, 2, 3}),
      OpExample("join_heads").values(0, {b, s, n, q, d}).values(1, {b, s, n, d}).values(2, {b, s, n, d}),
      OpExample("rope").values(0, {b, s, n, packed, d}).results({1, 2, 3}),
      OpExample("gelu").values(0, {b, s, h}, -3, 3),
      OpExample("swiglu").values(0, {b, s, {"gate", 2}, h}, -2, 2),
      OpExample("add").values(0, {b, s, h}).values(1, {b, s, h}),
      OpExample("scale").values(0, {b, s, h}).attr("factor", 0.5),
      OpExample("dropout")
          .values(0, {b, s, h})
          .numbers(1, {b}, 0, 99, DType::i64)
          .scalar(2, 12345)
          .attr("p", 0.5),
      OpExample("document_starts").numbers(0, {b, s}, 0, 3).attr("end", 2),
      OpExample("lm_head")
          .values(0, {b, s, h})
          .values(1, {v, h})
          .numbers(2, {b, s}, -1, 9)
          .scalar(3, 0.25)
          .scalar(4, 0)
          .loss(4, 3),
  };
}

}  // namespace prun
