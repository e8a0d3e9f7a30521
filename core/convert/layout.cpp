#include "convert/layout.hpp"

#include "prun/error.hpp"

namespace prun::convert {

std::optional<std::int64_t> data_ranks(Transfer& transfer, std::optional<std::int64_t> all,
                                       std::int64_t others) {
  const std::optional<std::int64_t> ranks = transfer.given().ranks ? transfer.given().ranks : all;
  if (!ranks) {
    transfer.ask("--ranks N", "on how many ranks, one for each GPU");
    return {};
  }
  if (others < 1 || *ranks < 1 || *ranks % others != 0)
    throw_error(ErrorCode::bad_input, *ranks, " ranks are no multiple of the ", others,
                " that tensor and pipeline parallelism take; --ranks N takes another number");
  return *ranks / others;
}

void add_strategy(Transfer& transfer, std::string_view name, std::string_view origin) {
  transfer.set(detail::concat("strategy.", name, "."), "", origin);
}

void write_axes(Transfer& transfer, const Axes& axes) {
  const auto axis = [&](const char* name, std::int64_t extent, const std::string& origin) {
    if (extent > 1) transfer.set_integer(detail::concat("mesh.", name), extent, origin);
  };
  axis("dp", axes.data, axes.data_origin);
  axis("pp", axes.pipeline, axes.pipeline_origin);
  axis("tp", axes.tensor, axes.tensor_origin);  // last: it varies fastest from rank to rank
  if (axes.data > 1) add_strategy(transfer, "data", axes.data_origin);
  if (axes.tensor > 1) add_strategy(transfer, "tensor", axes.tensor_origin);
  if (axes.pipeline > 1) add_strategy(transfer, "pipeline", axes.pipeline_origin);
}

void write_zero(Transfer& transfer, const Axes& axes, std::int64_t stage, std::string_view origin) {
  if (stage > 0 && axes.data > 1) transfer.set_integer("strategy.zero.stage", stage, origin);
}

}  // namespace prun::convert
