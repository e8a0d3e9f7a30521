#include "plugin/border.hpp"

namespace prun {

Status under_name(const std::string& plugin, const Status& status) noexcept {
  const std::string_view message(status.message, ::strnlen(status.message, sizeof status.message));
  return Status::failure(status.code, detail::concat(plugin, ": ", message));
}

}  // namespace prun
