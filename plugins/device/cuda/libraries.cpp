#include "libraries.hpp"

#include <filesystem>

#include "cuda/stopwatch.hpp"

namespace prun::cuda {
namespace {

template <class... Numbers>
std::string list_of(const Numbers&... numbers) {
  std::string text;
  ((text += std::to_string(numbers) + ' '), ...);
  return text;
}

std::string list_of(const HeadStrides& s) { return list_of(s.batch, s.seq, s.head); }

std::string text_of(const AttentionLayout& layout, bool backward) {
  const AttentionShape& s = layout.shape;
  return list_of(backward, s.batch, s.seq, s.heads, s.queries, s.head_dim, s.causal) + list_of(layout.q) +
         list_of(layout.k) + list_of(layout.v) + list_of(layout.y);
}

std::string file_in(const std::string& cache_folder) {
  return cache_folder.empty() ? cache_folder : cache_folder + "/cuda_algorithms";
}

double seconds_of(const Work& work, Stream stream) {
  work(stream);
  return Stopwatch(stream)([&] { work(stream); }, 10);
}

}  // namespace

Libraries::Libraries(Settings settings)
    : settings_(std::move(settings)), tuned_(file_in(settings_.cache_folder)) {}

const Gemm& Libraries::gemm() {
  if (gemm_) return *gemm_;
  gemm_.emplace(settings_.folders);
  if (!settings_.cache_folder.empty()) {
    std::error_code ignored;  // who writes there says what is wrong with it
    std::filesystem::create_directories(settings_.cache_folder, ignored);
  }
  return *gemm_;
}

std::shared_ptr<const GemmPlan> Libraries::plan(const Product& product, const GemmOperands& operands,
                                                Stream stream) {
  std::shared_ptr<const GemmPlan>& known = plans_[text_of(product)];
  if (known) return known;
  auto plan = std::make_shared<GemmPlan>(gemm().prepare(product));
  settle(*plan, operands, stream);
  return known = plan;
}

void Libraries::settle(GemmPlan& plan, const GemmOperands& operands, Stream stream) {
  if (settings_.tune)
    tuned_.settle(gemm(), plan, operands, stream);
  else
    gemm().run(plan, operands, stream);
}

Work Libraries::faster(const Product& product, const std::function<Work()>& together,
                       const std::function<Work()>& apart, Stream stream) {
  if (!settings_.tune) return together();
  const std::string key = gemm().identity() + ", " + text_of(product) + ", together or apart";
  bool in_one = true;
  const auto choose = [&](const std::string& word) {
    in_one = word == "together";
    return in_one || word == "apart";
  };
  if (choose(tuned_.find(key))) {
    tuned_.settle(key, choose, [] { return std::string(); });
    return in_one ? together() : apart();
  }
  // Made before it is this rank's turn to tune: each may be tuned itself.
  const Work one = together(), several = apart();
  const auto time = [&]() -> std::string {
    in_one = seconds_of(one, stream) <= seconds_of(several, stream);
    return in_one ? "together" : "apart";
  };
  tuned_.settle(key, choose, time);
  return in_one ? one : several;
}

CudnnAttention* Libraries::cudnn() {
  if (!cudnn_ && !cudnn_missing_) cudnn_missing_ = !open_cudnn(cudnn_);
  return cudnn_ ? &*cudnn_ : nullptr;
}

bool Libraries::open_cudnn(std::optional<CudnnAttention>& cudnn) const {
  if (settings_.attention == "own") return false;
  try {
    cudnn.emplace(settings_.folders);
    return true;
  } catch (const Error&) {
    if (settings_.attention == "cudnn") throw;
    return false;
  }
}

std::shared_ptr<const CudnnPlan> Libraries::attention(const AttentionLayout& layout, bool backward,
                                                      Stream stream) {
  std::shared_ptr<const CudnnPlan>& known = graphs_[{stream, text_of(layout, backward)}];
  if (!known)
    known = std::make_shared<CudnnPlan>(
        backward ? cudnn_->prepare_backward(layout, settings_.deterministic, stream)
                 : cudnn_->prepare(layout, stream));
  return known;
}

void Libraries::forget(Stream stream) {
  std::erase_if(graphs_, [&](const auto& graph) { return graph.first.first == stream; });
  if (cudnn_) cudnn_->forget(stream);
}

std::string Libraries::versions() const {
  std::optional<CudnnAttention> cudnn;
  return Gemm(settings_.folders).version() + ", " +
         (open_cudnn(cudnn) ? cudnn->version() : "attention of our own");
}

}  // namespace prun::cuda
