// Builds attention whose keys and values come out of a narrow latent vector, and perhaps its queries too
// (DeepSeek's MLA). Some of a head's channels turn with the position; for keys those are the same for all
// heads.
#pragma once

#include <string>

#include "family.hpp"
#include "part.hpp"
#include "prun/model.hpp"
#include "rope.hpp"

namespace prun {

class LatentAttention {
 public:
  explicit LatentAttention(const Options& options);

  bool present() const { return width_ > 0; }
  // Throws where options contradict each other.
  void check(std::int64_t heads, std::int64_t kv_heads, const Dim& head_dim) const;
  // x is the layer's input, normed.
  Id build(const SegmentPart& s, const Dim& hidden, const Dim& heads, const Dim& head_dim, const Rope& rope,
           Id x, double window, double softcap) const;

  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const Family& family, const Dim& head_dim, ConfigWriter& config) const;
  void add_weights(const LayerWeights& weights) const;

 private:
  Id queries(const SegmentPart& s, const Dim& hidden, const Dim& heads, const Dim& head_dim, Id x) const;

  std::int64_t width_, query_width_, turned_, values_;
  bool interleaved_;
};

}  // namespace prun
