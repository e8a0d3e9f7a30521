// The small model and the conversations among the fixtures, and what a run on them has logged.
#pragma once

#include <fstream>
#include <regex>

#include "cli/binary.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {

inline const std::string folder_of_model = PRUN_TEST_FIXTURES "/chat/chatml",
                         chats = PRUN_TEST_FIXTURES "/chat/chats.jsonl";

inline std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// It reads the losses of a run's steps, in order.
inline std::vector<double> losses_of(const std::string& run) {
  const std::string log = contents(run + "/log.jsonl");
  static const std::regex loss(R"re("loss":([-+.eE0-9]+))re");
  std::vector<double> losses;
  for (std::sregex_iterator at(log.begin(), log.end(), loss), end; at != end; ++at)
    losses.push_back(std::stod((*at)[1].str()));
  return losses;
}

}  // namespace prun::test
