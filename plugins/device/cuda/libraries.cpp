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
         list_of(layout.k) + list_of(layout.v) + list_of(layout.y) +
         (s.window > 0 ? "window " + list_of(s.window) : std::string()) +
         (s.across() ? list_of(s.keys) : std::string()) +
         (layout.type == DType::bf16 ? std::string() : name_of(layout.type));
}

std::string file_in(const std::string& cache_folder) {
  return cache_folder.empty() ? cache_folder : cache_folder + "/cuda_algorithms";
}

// Work that cannot be part of a graph costs about this much more, and breaks a row of kernels in two.
double seconds_of(const Work& work, Stream stream) {
  constexpr double launch = 3e-6;
  work(stream);
  return Stopwatch(stream)([&] { work(stream); }, 10) + (work.captures() ? 0 : launch);
}

}  // namespace

Libraries::Libraries(Settings settings)
    : settings_(std::move(settings)), tuned_(file_in(settings_.cache_folder)) {}

const Gemm& Libraries::gemm() {
  if (gemm_) return *gemm_;
  gemm_.emplace(settings_.folders);
  if (!settings_.cache_folder.empty()) {
    std::error_code ignored;  // the code that writes there says what is wrong with it
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

Work Libraries::faster(const std::string& question, const Way& first, const Way& second, Stream stream) {
  if (!settings_.tune) return first.make();
  const std::string key = gemm().identity() + ", " + question + ", " + first.name + " or " + second.name;
  bool is_first = true;
  const auto choose = [&](const std::string& word) {
    is_first = word == first.name;
    return is_first || word == second.name;
  };
  if (choose(tuned_.find(key))) {
    tuned_.settle(key, choose, [] { return std::string(); });
    return is_first ? first.make() : second.make();
  }
  // Both are made before it is this rank's turn to tune: each may be tuned itself.
  const Work one = first.make(), other = second.make();
  const auto time = [&]() -> std::string {
    is_first = seconds_of(one, stream) <= seconds_of(other, stream);
    return is_first ? first.name : second.name;
  };
  tuned_.settle(key, choose, time);
  return is_first ? one : other;
}

Work Libraries::faster(const Product& product, const std::function<Work()>& together,
                       const std::function<Work()>& apart, Stream stream) {
  return faster(text_of(product), {"together", together}, {"apart", apart}, stream);
}

Work Libraries::cudnn_or_own(const AttentionLayout& layout, bool backward,
                             const std::function<Work()>& by_cudnn, const std::function<Work()>& own,
                             Stream stream) {
  if (settings_.attention == "cudnn") return by_cudnn();
  const std::string question = cudnn_->version() + (settings_.deterministic ? ", deterministic" : "") +
                               ", attention " + text_of(layout, backward);
  return faster(question, {"cudnn", by_cudnn}, {"own", own}, stream);
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

bool Libraries::has_attention(const AttentionLayout& layout, bool backward, Stream stream) {
  try {
    return attention(layout, backward, stream) != nullptr;
  } catch (const Error& error) {
    if (settings_.attention == "cudnn" || error.code() != ErrorCode::unsupported) throw;
    return false;
  }
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

std::string Libraries::examine() const {
  const Gemm gemm(settings_.folders);
  const std::string lines = "good|cuBLAS|" + gemm.version() + ", " + gemm.path() + "|\n";
  if (settings_.attention == "own") return lines;
  try {
    const CudnnAttention cudnn(settings_.folders);
    return lines + "good|cuDNN|" + cudnn.version() + ", " + cudnn.path() + "|\n";
  } catch (const Error& error) {
    return lines + "slow|cuDNN|" + error.what() +
           "|until then attention takes prun's own kernels, slower in bf16\n";
  }
}

}  // namespace prun::cuda
