# cmake -DPAGES=A.md,B.md -DOUTPUT=FILE.cpp -P this: writes the pages as the text that tools/demo/demo_text.hpp declares.
string(REPLACE "," ";" pages "${PAGES}")
file(WRITE ${OUTPUT}.new "// Generated from pages of docs.\n#include \"demo/demo_text.hpp\"\n\nnamespace prun {\nconst std::string_view demo_pages =\n")
foreach(page ${pages})
  file(READ ${page} text)
  file(APPEND ${OUTPUT}.new "R\"prun_page(${text})prun_page\"\n")
endforeach()
file(APPEND ${OUTPUT}.new ";\n}  // namespace prun\n")
file(RENAME ${OUTPUT}.new ${OUTPUT})
