// Where optimizer state, parameters, gradients or activations are to lie, as the recipe says it: "host", or
// in per cent "host:70, nvme:30".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace prun {

struct Share {
  std::string tier;  // device, host or nvme; alone also auto
  int percent = 100;
};

// Throws bad_input for what is no place, and for per cent that do not come to 100; `key` is whose they are.
std::vector<Share> read_shares(std::string_view key, const std::string& text);
// Of a text that has been read before.
bool lies_in(const std::string& text, std::string_view tier);
// "70 % in the host's memory and 30 % on drives"
std::string said(const std::vector<Share>& shares);

}  // namespace prun
