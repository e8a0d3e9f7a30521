#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> latent_examples() {
  using namespace example_dims;
  return {
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

}  // namespace prun
