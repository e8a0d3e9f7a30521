// Computes attention through cuDNN's graphs, for bf16 and fp16: a graph is prepared once for a shape, layout
// and stream; a later run allocates nothing on the device, chooses nothing, and waits for nothing. cuDNN is
// opened when it is first needed. A build without its headers has this class as well, which then says what is
// missing.
//
// cuDNN knows one stride for all heads of queries. Packed groups of several queries have none: there each
// group is a sample of its own to cuDNN, and a graph runs once for each sample of ours.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/cuda.hpp"

namespace prun::cuda {

// Says how a call's operands are laid out. Gradients are laid out like their operands.
struct AttentionLayout {
  AttentionShape shape;
  HeadStrides q, k, v, y;
  DType type = DType::bf16;

  bool operator==(const AttentionLayout&) const = default;
};

// Says in a sentence why cuDNN cannot take such calls; it is empty where it can, as far as that is known
// without a driver.
std::string cudnn_refusal(const AttentionLayout& layout);

// Returns the bytes of workspace that a call needs at most, aligned to 256; they are known without cuDNN or a
// driver. Where a batch would need more than cudnn_most_workspace, a graph runs over parts of it, and over
// parts of its heads.
inline constexpr std::int64_t cudnn_most_workspace = std::int64_t{512} << 20;
std::int64_t cudnn_workspace(const AttentionLayout& layout);
std::int64_t cudnn_backward_workspace(const AttentionLayout& layout, bool deterministic);
// Returns enough for each call of no more rows and keys: with fewer of them, parts may be larger.
std::int64_t cudnn_most_backward_workspace(const AttentionLayout& layout, bool deterministic);

// Names rows of queries that follow each other, of which the last sees `keys` keys. To cuDNN they are a call
// of their own, whose shape has those rows and keys: the last row's position is that of the last key.
struct QueryRun {
  std::int64_t row, rows, keys;
};
// Returns runs of queries of some positions (AttentionShape::across), none longer than most_rows.
std::vector<QueryRun> query_runs(const AttentionShape& shape, std::int64_t most_rows);
// Returns a limit that keeps the gradient of one head of keys within cudnn_most_workspace, or near it.
std::int64_t most_query_rows(const AttentionLayout& layout, bool deterministic);

struct CudnnGraph;

// Is a graph with its algorithm, to run on the stream it was prepared for; the CudnnAttention that made it
// must outlive it.
class CudnnPlan {
 public:
  CudnnPlan(CudnnPlan&&) noexcept;
  CudnnPlan& operator=(CudnnPlan&&) noexcept;
  ~CudnnPlan();

  std::int64_t workspace() const;  // counts bytes
  std::string algorithm() const;   // is cuDNN's name for it

 private:
  friend class CudnnAttention;
  explicit CudnnPlan(std::unique_ptr<CudnnGraph> graph);
  std::unique_ptr<CudnnGraph> graph_;
};

// Opens cuDNN on the device that is current when it is made. Throws where library or driver are missing.
class CudnnAttention {
 public:
  // The library is looked for in these folders first; see Library.
  explicit CudnnAttention(const std::string& folders = {});
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Returns a text such as "cuDNN 9.19.0".
  std::string version() const;
  // Returns where the library is.
  const std::string& path() const;

  // Both throw, with cuDNN's reason, where it has no graph for this device that stays within the workspace
  // above.
  CudnnPlan prepare(const AttentionLayout& layout, Stream stream) const;
  // `deterministic` gives the same bits every time, for more workspace.
  CudnnPlan prepare_backward(const AttentionLayout& layout, bool deterministic, Stream stream) const;

  // Runs calls as they were prepared, with the workspace that was stated, operands aligned to 16 bytes.
  template <class T>
  void run(const CudnnPlan& plan, const AttentionForward<T>& call) const;
  template <class T>
  void run(const CudnnPlan& plan, const AttentionBackward<T>& call) const;

  // Must be called before the stream ends; plans that were prepared for it must have ended.
  void forget(Stream stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace prun::cuda
