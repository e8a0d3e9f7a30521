#include "convert/layout.hpp"

#include <string>
#include <utility>
#include <vector>

#include "prun/error.hpp"

namespace prun::convert {

std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t all = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(all, factor, &all))
      throw_error(ErrorCode::bad_input, "its sizes multiply to more than 64 bits hold");
  return all;
}

void read_sequence(Transfer& transfer, std::initializer_list<const char*> keys, Axes& axes) {
  for (const char* key : keys) {
    const std::int64_t ranks = transfer.integer(key, 1);
    if (ranks < 1) throw_error(ErrorCode::bad_input, key, " is ", ranks, "; ranks are counted from 1 on");
    if (ranks == 1 || axes.sequence > 1) continue;
    transfer.carried(key);
    axes.sequence = ranks;
    axes.sequence_origin = key;
  }
}

std::string data_origin(std::string_view ranks, const Axes& axes) {
  return detail::concat(ranks, " / (tensor x pipeline", axes.sequence > 1 ? " x sequence)" : ")");
}

std::optional<std::int64_t> data_ranks(Transfer& transfer, std::optional<std::int64_t> all,
                                       const Axes& axes) {
  const std::int64_t others = product({axes.tensor, axes.pipeline, axes.sequence});
  const std::optional<std::int64_t> ranks = transfer.given().ranks ? transfer.given().ranks : all;
  if (!ranks) {
    transfer.ask("--ranks N", "on how many ranks, one for each GPU");
    return {};
  }
  if (others < 1 || *ranks < 1 || *ranks % others != 0)
    throw_error(ErrorCode::bad_input, *ranks, " ranks are no multiple of the ", others, " that ",
                axes.sequence > 1 ? "tensor, pipeline and context" : "tensor and pipeline",
                " parallelism take; --ranks N takes another number");
  return *ranks / others;
}

void add_strategy(Transfer& transfer, std::string_view name, std::string_view origin) {
  transfer.set_plugin(detail::concat("strategy.", name), origin);
}

void write_axes(Transfer& transfer, const Axes& axes) {
  const auto axis = [&](const char* name, std::int64_t extent, const std::string& origin) {
    if (extent > 1) transfer.set(detail::concat("mesh.", name), extent, origin);
  };
  axis("dp", axes.data, axes.data_origin);
  axis("pp", axes.pipeline, axes.pipeline_origin);
  axis("cp", axes.sequence, axes.sequence_origin);
  axis("tp", axes.tensor, axes.tensor_origin);  // must be last: it varies fastest from rank to rank
  if (axes.data > 1) add_strategy(transfer, "data", axes.data_origin);
  if (axes.sequence > 1) add_strategy(transfer, "context", axes.sequence_origin);
  if (axes.tensor > 1) add_strategy(transfer, "tensor", axes.tensor_origin);
  if (axes.pipeline > 1) add_strategy(transfer, "pipeline", axes.pipeline_origin);
}

namespace {

constexpr const char* whole_axes =
    "strategy experts takes whole axes of the mesh, from the innermost one outwards; with two axes that "
    "strategy data names one after the other, one of them may have the experts";

// Writes nothing for one rank. Returns false where no axes have as many ranks.
bool write_experts(Transfer& transfer, const Axes& axes, std::int64_t ranks, bool with_tensor,
                   std::string_view origin) {
  if (ranks == 1) return !with_tensor || axes.tensor == 1;
  std::vector<std::string> names;
  std::int64_t all = 1;
  const std::pair<const char*, std::int64_t> inwards[] = {
      {"tp", with_tensor ? axes.tensor : 1}, {"cp", axes.sequence}, {"dp", axes.data}};
  for (const auto& [name, extent] : inwards) {
    if (extent == 1) continue;
    names.insert(names.begin(), name);
    all *= extent;
    if (all == ranks) break;
  }
  if (all != ranks) return false;
  if (names.size() == 1)
    transfer.set_text("strategy.experts.axis", names.front(), origin);
  else
    transfer.set("strategy.experts.axis", names, origin);
  return true;
}

}  // namespace

void carry_experts(Transfer& transfer, const Axes& axes, std::int64_t ranks, bool with_tensor,
                   const std::string& key, const std::string& split_key) {
  transfer.without_effect(split_key, with_tensor ? "experts over tp are whole"
                                                 : "strategy tensor splits experts as it splits MLPs");
  if (!write_experts(transfer, axes, ranks, with_tensor, key))
    transfer.refuse(key, whole_axes);
  else if (ranks > 1)
    transfer.carried(key);
  else
    transfer.without_effect(key, "as here");
}

void write_zero(Transfer& transfer, const Axes& axes, std::int64_t stage, std::string_view origin) {
  if (stage == 0 || axes.data * axes.sequence == 1) return;
  transfer.set("strategy.zero.stage", stage, origin);
  std::vector<std::string> names;
  if (axes.data > 1) names.emplace_back("dp");
  if (axes.sequence > 1) {
    names.emplace_back("cp");
    transfer.set("strategy.zero.axis", names, axes.sequence_origin);
  }
}

}  // namespace prun::convert
