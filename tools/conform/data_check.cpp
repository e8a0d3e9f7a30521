#include "conform/data_check.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "prun/data.hpp"

namespace prun {
namespace {

constexpr std::int64_t seq = 64;
constexpr std::size_t fence = 16;
constexpr std::int32_t untouched[] = {-0x35a5a5a6, 0x5a5a5a5a};
constexpr std::uint8_t untouched_roles[] = {0xff, 0xfe};

struct Sample {
  std::vector<std::int32_t> tokens, targets;
  bool operator==(const Sample&) const = default;
};

template <class T>
std::vector<T> fenced(T before) {
  return std::vector<T>(static_cast<std::size_t>(seq) + 2 * fence, before);
}

// Holds memory between fences, which must stay as they were.
template <class T>
std::vector<T> within(const std::vector<T>& row, T before, std::int64_t index, const char* call,
                      const char* what) {
  const auto begin = row.begin() + fence, end = row.end() - fence;
  const auto same = [&](T x) { return x == before; };
  if (!std::all_of(row.begin(), begin, same) || !std::all_of(end, row.end(), same))
    throw_error(ErrorCode::bad_input, call, " of sample ", index, " writes beside the ", seq, what,
                " that it was given room for");
  return std::vector<T>(begin, end);
}

// Reads a sample into memory that is filled before, between fences.
Sample read(DataInterface& data, std::int64_t index, std::int32_t before) {
  std::vector<std::int32_t> tokens = fenced(before), targets = fenced(before);
  raise(data.read(index, tokens.data() + fence, targets.data() + fence));
  return {within(tokens, before, index, "read()", " tokens"),
          within(targets, before, index, "read()", " targets")};
}

std::vector<std::uint8_t> read_roles(DataInterface& data, std::int64_t index, std::uint8_t before) {
  std::vector<std::uint8_t> roles = fenced(before);
  raise(data.roles(index, roles.data() + fence));
  return within(roles, before, index, "roles()", " roles");
}

DataInfo open(DataInterface& data) {
  DataInfo info;
  raise(data.open(seq, &info));
  return info;
}

void check_range(const Sample& sample, std::int64_t index, const DataInfo& info) {
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    const std::int32_t token = sample.tokens[i], target = sample.targets[i];
    if (token < 0)
      throw_error(ErrorCode::bad_input, "cannot use sample ", index, ": its token ", i, " is ", token,
                  "; return tokens from 0 on");
    if (info.vocab > 0 && std::max(token, target) >= info.vocab)
      throw_error(ErrorCode::bad_input, "sample ", index, " has ", std::max(token, target), " in place ", i,
                  ", and open() says that the vocabulary is ", info.vocab);
  }
}

// Reads every sample, or as many as take a moment, from all over the set.
std::int64_t check_ranges(DataInterface& data, const DataInfo& info) {
  constexpr std::int64_t most_samples = 50'000;
  const std::int64_t count = std::min(info.samples, most_samples);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::int64_t i = 0;
  for (; i < count && std::chrono::steady_clock::now() < end; ++i) {
    const auto index = static_cast<std::int64_t>(static_cast<double>(i) / static_cast<double>(count) *
                                                 static_cast<double>(info.samples));
    check_range(read(data, index, untouched[i % 2]), index, info);
  }
  return i;
}

// Returns how many roles the plugin's trait names.
std::size_t count_roles(const PluginNote& note) {
  const std::string_view named = trait_of(note, "roles");
  return named.empty() ? 0 : split(named, ',').size();
}

// Must come after read(), as in training. Only targets that count have a role.
void check_roles(DataInterface& data, DataInterface& other, std::int64_t index, std::size_t known) {
  const Sample sample = read(data, index, untouched[0]);
  const std::vector<std::uint8_t> roles = read_roles(data, index, untouched_roles[0]);
  read(other, index, untouched[1]);
  const std::vector<std::uint8_t> again = read_roles(other, index, untouched_roles[1]);
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (sample.targets[i] < 0) continue;
    if (roles[i] >= known)
      throw_error(ErrorCode::bad_input, "target ", i, " of sample ", index, " is of role ", int{roles[i]},
                  ", and the trait `roles` names ", known);
    if (roles[i] != again[i])
      throw_error(ErrorCode::bad_input, "target ", i, " of sample ", index, " is of role ", int{roles[i]},
                  ", of a second object of role ", int{again[i]}, "; it must be the same");
  }
}

}  // namespace

CheckFinding check_data(const TriedPlugin& plugin) {
  auto& data = *static_cast<DataInterface*>(plugin.object);
  plugin.doing("open()");
  const DataInfo info = open(data);
  if (info.samples < 1)
    return {detail::concat("not checked: with default options there are ", info.samples, " samples"), false};
  const std::shared_ptr<void> another = plugin.create(plugin.options);
  auto& other = *static_cast<DataInterface*>(another.get());
  if (const DataInfo again = open(other); again.samples != info.samples || again.vocab != info.vocab)
    throw_error(ErrorCode::bad_input, "open() of a second object says ", again.samples,
                " samples and a vocabulary of ", again.vocab, ", that of the first ", info.samples, " and ",
                info.vocab);
  std::vector<std::int64_t> indices = {0, 1, info.samples / 2, info.samples - 1};
  std::erase_if(indices, [&](std::int64_t index) { return index >= info.samples; });
  plugin.doing("read()");
  std::vector<Sample> first;
  for (std::int64_t index : indices) first.push_back(read(data, index, untouched[0]));
  for (std::size_t i = indices.size(); i-- > 0;) {
    check_range(first[i], indices[i], info);
    for (DataInterface* reader : {&data, &other})
      if (read(*reader, indices[i], untouched[1]) != first[i])
        throw_error(ErrorCode::bad_input, "sample ", indices[i], " is another one when it is read again",
                    reader == &other ? " by a second object" : "",
                    "; it must be the same for the same number, whatever was read before, and whole");
  }
  const std::int64_t ranged = check_ranges(data, info);
  const std::size_t roles = count_roles(plugin.note);
  if (roles == 0)
    return {detail::concat("samples ", indices.size(), " of ", info.samples, ", numbers of ", ranged)};
  plugin.doing("roles()");
  for (const std::int64_t index : indices) check_roles(data, other, index, roles);
  return {detail::concat("samples ", indices.size(), " of ", info.samples, ", ", roles, " roles")};
}

}  // namespace prun
