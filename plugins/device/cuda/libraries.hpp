// Holds what the ops of a device share: NVIDIA's libraries, opened when the first op that wants them is
// bound, and what was prepared with them, once for each shape.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "attention/cuda_cudnn.hpp"
#include "cuda/tuned.hpp"
#include "device_op.hpp"

namespace prun::cuda {

class Libraries {
 public:
  struct Settings {
    std::string folders;  // lists where libraries are looked for first
    bool tune = true;     // says to try candidates for each product
    bool deterministic = false;
    std::string attention;     // is auto, cudnn or own
    std::string cache_folder;  // keeps what tuning found; empty: nothing is kept
  };
  explicit Libraries(Settings settings);

  const Gemm& gemm();
  // Returns the product with the best algorithm known. It has run once on these operands: all it needs is
  // loaded.
  std::shared_ptr<const GemmPlan> plan(const Product& product, const GemmOperands& operands, Stream stream);
  // Does the same for a plan that is prepared already.
  void settle(GemmPlan& plan, const GemmOperands& operands, Stream stream);

  // Returns the faster of two ways to compute the same, perhaps with other bits: so the choice is kept as
  // algorithms are, by the question that it answers, and where it is known the other way is not made. Without
  // tuning it is the first way.
  struct Way {
    std::string name;
    std::function<Work()> make;
  };
  Work faster(const std::string& question, const Way& first, const Way& second, Stream stream);
  // Chooses for a product with the op that follows it: both together, or apart.
  Work faster(const Product& product, const std::function<Work()>& together,
              const std::function<Work()>& apart, Stream stream);

  // Returns null where attention is left to our own kernels: the recipe says so, or cuDNN is not there.
  CudnnAttention* cudnn();
  // Chooses cuDNN's kernels, or our own where they are faster and not ruled out.
  Work cudnn_or_own(const AttentionLayout& layout, bool backward, const std::function<Work()>& by_cudnn,
                    const std::function<Work()>& own, Stream stream);
  std::shared_ptr<const CudnnPlan> attention(const AttentionLayout& layout, bool backward, Stream stream);
  // Says whether cuDNN has a plan for it: which windows it supports differs between its releases. Where the
  // recipe wants cuDNN alone, its reason is thrown.
  bool has_attention(const AttentionLayout& layout, bool backward, Stream stream);
  // Drops what was prepared for a stream that ends; no work may use it any more.
  void forget(Stream stream);

  // The first returns what was chosen by measuring, the second takes an earlier run's choices, as lines
  // (cuda/tuned.hpp).
  std::string choices() const { return tuned_.chosen(); }
  void prefer(std::string_view lines) { tuned_.prefer(lines); }

  bool deterministic() const { return settings_.deterministic; }
  // Returns "cuBLASLt 13.1.0, cuDNN 9.19.0"; no device gets a context by it.
  std::string versions() const;
  // Returns lines of Device::examine(): which library was opened and where it is, or why none was.
  std::string examine() const;

 private:
  // Says whether cuDNN is to be used and is there.
  bool open_cudnn(std::optional<CudnnAttention>& cudnn) const;

  Settings settings_;
  std::optional<Gemm> gemm_;
  TunedAlgorithms tuned_;
  std::map<std::string, std::shared_ptr<const GemmPlan>> plans_;  // keyed by the product's text
  std::optional<CudnnAttention> cudnn_;
  bool cudnn_missing_ = false;
  std::map<std::pair<Stream, std::string>, std::shared_ptr<const CudnnPlan>>
      graphs_;  // keyed by the layout's text
};

}  // namespace prun::cuda
