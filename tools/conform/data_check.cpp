#include "conform/data_check.hpp"

#include <algorithm>
#include <vector>

#include "prun/data.hpp"

namespace prun {
namespace {

constexpr std::int64_t seq = 16;
constexpr std::size_t fence = 16;
constexpr std::int32_t untouched[] = {-0x35a5a5a6, 0x5a5a5a5a};

struct Sample {
  std::vector<std::int32_t> tokens, targets;
  bool operator==(const Sample&) const = default;
};

// Into memory that holds something else, between fences.
Sample read(DataInterface& data, std::int64_t index, std::int32_t before) {
  Sample sample;
  for (std::vector<std::int32_t>* row : {&sample.tokens, &sample.targets})
    row->assign(static_cast<std::size_t>(seq) + 2 * fence, before);
  raise(data.read(index, sample.tokens.data() + fence, sample.targets.data() + fence));
  for (std::vector<std::int32_t>* row : {&sample.tokens, &sample.targets}) {
    const auto begin = row->begin() + fence, end = row->end() - fence;
    const auto same = [&](std::int32_t x) { return x == before; };
    if (!std::all_of(row->begin(), begin, same) || !std::all_of(end, row->end(), same))
      throw_error(ErrorCode::bad_input, "read() of sample ", index, " writes beside the ", seq,
                  row == &sample.tokens ? " tokens" : " targets", " that it was given room for");
    *row = std::vector<std::int32_t>(begin, end);
  }
  return sample;
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
      throw_error(ErrorCode::bad_input, "token ", i, " of sample ", index, " is ", token,
                  "; tokens are not negative");
    if (info.vocab > 0 && std::max(token, target) >= info.vocab)
      throw_error(ErrorCode::bad_input, "sample ", index, " has ", std::max(token, target), " in place ", i,
                  ", and open() says that the vocabulary is ", info.vocab);
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
  return {detail::concat("samples ", indices.size(), " of ", info.samples)};
}

}  // namespace prun
