// Draws recipes (support/drawn_recipe.hpp) of conversations, which lie among the fixtures.
#pragma once

#include <string>

namespace prun::test {

// Returns the recipe in fp64 on conversations, by one of four templates or the tokenizer's own: packed or
// not, cut or left out where they are too long. A third has adapters, a third sequences in parts, a sixth is
// a decoder of another family.
std::string drawn_chat(unsigned seed, std::string text);

}  // namespace prun::test
