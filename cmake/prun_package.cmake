# Installs documents, recipes and texts beside programs and plugins, and lets `cpack` make a package for Debian (tools/package).

# Texts that prun itself writes: the manual page, completion, the recipes' schema.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/write_texts.sh @ONLY CONTENT [[
set -e
mkdir -p "$2" && cd "$2"
"$1" man | gzip -9n > prun.1.gz
"$1" completion bash > prun
"$1" completion zsh > _prun
"$1" reference --json-schema > recipe.schema.json
]])
set(texts ${CMAKE_BINARY_DIR}/texts)
install(CODE "execute_process(COMMAND sh ${CMAKE_BINARY_DIR}/write_texts.sh $<TARGET_FILE:prun> ${texts} COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${texts}/prun.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${texts}/prun DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${texts}/_prun DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${texts}/recipe.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/prun)
install(FILES README.md LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs configs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

# UCX, Boost and the C++ library are found by dpkg-shlibdeps. NVIDIA's driver and libraries are opened where they are: no
# package can promise them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME prun)
set(CPACK_PACKAGE_VENDOR prun)
set(CPACK_PACKAGE_CONTACT "the maintainers of prun <maintainers@prun.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plugin-based training runtime for transformer models")
set(CPACK_PACKAGE_DESCRIPTION "prun trains GPT and Llama class models from a TOML recipe, on CPUs and on NVIDIA GPUs where
their driver, cuBLAS, cuDNN and NCCL are installed. With headers and CMake files for plugins.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, cmake")
include(CPack)
