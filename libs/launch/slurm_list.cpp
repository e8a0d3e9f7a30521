#include "launch/slurm_list.hpp"

#include <charconv>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

[[noreturn]] void malformed(std::string_view list, std::string_view variable) {
  throw_error(ErrorCode::bad_input, "environment variable ", variable, ": ", in_quotes(list),
              " is not a list as Slurm writes it");
}

// Takes a number from the front of the text.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

bool is_host_name(std::string_view name) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  return !name.empty() && name.find_first_not_of(allowed) == std::string_view::npos;
}

}  // namespace

// Returns the first host: a bracket stands for its first number, with the zeros it is written with.
std::string first_slurm_host(std::string_view list, std::string_view variable) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string_view::npos) malformed(list, variable);
    const std::string_view inside = list.substr(at + 1, close - at - 1);
    const std::string_view number = inside.substr(0, inside.find_first_of(",-"));
    if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos)
      malformed(list, variable);
    host += number;
    at = close + 1;
  }
  if (!is_host_name(host)) malformed(list, variable);
  return host;
}

int slurm_tasks_of_node(std::string_view list, int node, std::string_view variable) {
  std::string_view rest = list;
  for (long first = 0;;) {
    int tasks = 0, nodes = 1;
    if (!take_number(rest, tasks) || tasks == 0) malformed(list, variable);
    if (take(rest, "(x") && (!take_number(rest, nodes) || nodes == 0 || !take(rest, ")")))
      malformed(list, variable);
    if (node < first + nodes) return tasks;
    first += nodes;
    if (!take(rest, ",")) break;
  }
  if (!rest.empty()) malformed(list, variable);
  throw_error(ErrorCode::bad_input, "environment variable ", variable, ": ", in_quotes(list), " has no node ",
              node);
}

}  // namespace prun
