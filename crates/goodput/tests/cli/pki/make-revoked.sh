#!/bin/sh
# Makes what the tests of revoked certificates need: an authority, two clients that it signed, and its lists that revoke
# the second of them: one good for a hundred years, one that is out of date. Run it in this folder.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
config=$work/openssl.cnf
cat > "$config" <<END
[ca]
default_ca = listing
[listing]
database = $work/index
serial = $work/serial
crlnumber = $work/crlnumber
new_certs_dir = $work
certificate = listing.pem
private_key = $work/listing-key.pem
default_md = sha256
policy = any
x509_extensions = client
crl_extensions = list
[any]
commonName = supplied
[client]
subjectAltName = DNS:client
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[list]
authorityKeyIdentifier = keyid
[req]
distinguished_name = name
[name]
[authority]
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
END
: > "$work/index"
echo 01 > "$work/serial"
echo 01 > "$work/crlnumber"
key() {
	openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}
key "$work/listing-key.pem"
openssl req -config "$config" -x509 -new -key "$work/listing-key.pem" -subj "/CN=goodput test listing" -days 36500 \
	-extensions authority -out listing.pem
for name in kept revoked; do
	key $name-key.pem
	openssl req -config "$config" -new -key $name-key.pem -subj "/CN=goodput test $name" -out "$work/$name.csr"
	openssl ca -config "$config" -batch -notext -startdate 20200101000000Z -enddate 21200101000000Z -in "$work/$name.csr" -out $name.pem
done
openssl ca -config "$config" -revoke revoked.pem
openssl ca -config "$config" -gencrl -crl_lastupdate 20200101000000Z -crl_nextupdate 21200101000000Z -out listing-crl.pem
openssl ca -config "$config" -gencrl -crl_lastupdate 20200101000000Z -crl_nextupdate 20200201000000Z -out listing-old-crl.pem
